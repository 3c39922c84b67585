//! Static rates, as multiples of 2.5 Gb/s and in Mb/s. Pure arithmetic, with no library behind it.

use core::ffi::c_int;

use crate::bindings::verbs::ibv_rate;

/// A rate, the multiple of 2.5 Gb/s that the InfiniBand specification gives it, if it is one, and its Mb/s.
///
/// The rates in between are those of lanes with 64b/66b coding, 14.0625 and 25.78125 Gb/s, and their multiples by 4, 8
/// and 12; two rates of that kind have a multiple nevertheless, which is rounded.
const RATES: [(ibv_rate, Option<c_int>, c_int); 23] = [
    (ibv_rate::IBV_RATE_2_5_GBPS, Some(1), 2_500),
    (ibv_rate::IBV_RATE_5_GBPS, Some(2), 5_000),
    (ibv_rate::IBV_RATE_10_GBPS, Some(4), 10_000),
    (ibv_rate::IBV_RATE_20_GBPS, Some(8), 20_000),
    (ibv_rate::IBV_RATE_30_GBPS, Some(12), 30_000),
    (ibv_rate::IBV_RATE_40_GBPS, Some(16), 40_000),
    (ibv_rate::IBV_RATE_60_GBPS, Some(24), 60_000),
    (ibv_rate::IBV_RATE_80_GBPS, Some(32), 80_000),
    (ibv_rate::IBV_RATE_120_GBPS, Some(48), 120_000),
    (ibv_rate::IBV_RATE_14_GBPS, None, 14_062),
    (ibv_rate::IBV_RATE_56_GBPS, None, 56_250),
    (ibv_rate::IBV_RATE_112_GBPS, None, 112_500),
    (ibv_rate::IBV_RATE_168_GBPS, None, 168_750),
    (ibv_rate::IBV_RATE_25_GBPS, None, 25_781),
    (ibv_rate::IBV_RATE_100_GBPS, None, 103_125),
    (ibv_rate::IBV_RATE_200_GBPS, None, 206_250),
    (ibv_rate::IBV_RATE_300_GBPS, None, 309_375),
    (ibv_rate::IBV_RATE_28_GBPS, Some(11), 28_125),
    (ibv_rate::IBV_RATE_50_GBPS, Some(20), 53_125),
    (ibv_rate::IBV_RATE_400_GBPS, Some(160), 425_000),
    (ibv_rate::IBV_RATE_600_GBPS, Some(240), 637_500),
    (ibv_rate::IBV_RATE_800_GBPS, Some(320), 850_000),
    (ibv_rate::IBV_RATE_1200_GBPS, Some(480), 1_275_000),
];

/// `ibv_rate_to_mult`: the multiple of 2.5 Gb/s, or -1 where `rate` is none; see `ibv_rate_to_mult(3)`.
pub extern "C" fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
    RATES.iter().find(|entry| entry.0 == rate).and_then(|entry| entry.1).unwrap_or(-1)
}

/// `mult_to_ibv_rate`: the rate that is `mult` times 2.5 Gb/s, or `IBV_RATE_MAX`; see `mult_to_ibv_rate(3)`.
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    RATES.iter().find(|entry| entry.1 == Some(mult)).map_or(ibv_rate::IBV_RATE_MAX, |entry| entry.0)
}

/// `ibv_rate_to_mbps`: the rate in Mb/s, or -1 where `rate` is not known; see `ibv_rate_to_mbps(3)`.
pub extern "C" fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
    RATES.iter().find(|entry| entry.0 == rate).map_or(-1, |entry| entry.2)
}

/// `mbps_to_ibv_rate`: the rate of exactly `mbps` Mb/s, or `IBV_RATE_MAX`; see `mbps_to_ibv_rate(3)`.
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES.iter().find(|entry| entry.2 == mbps).map_or(ibv_rate::IBV_RATE_MAX, |entry| entry.0)
}
