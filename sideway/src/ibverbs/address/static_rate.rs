//! `enum ibv_rate`: the highest rate on a path.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_rate as raw;

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_rate` — the maximum packet rate on a path that is slower than the port.
    ///
    /// The names give the rate in Gbit/s. RoCE devices ignore the rate.
    #[doc(alias = "ibv_rate")]
    pub enum StaticRate {
        /// As fast as the port.
        Max = raw::IBV_RATE_MAX.0,
        /// 2.5 Gbit/s.
        Gbps2_5 = raw::IBV_RATE_2_5_GBPS.0 => "2.5 Gbit/s",
        /// 5 Gbit/s.
        Gbps5 = raw::IBV_RATE_5_GBPS.0 => "5 Gbit/s",
        /// 10 Gbit/s.
        Gbps10 = raw::IBV_RATE_10_GBPS.0 => "10 Gbit/s",
        /// 20 Gbit/s.
        Gbps20 = raw::IBV_RATE_20_GBPS.0 => "20 Gbit/s",
        /// 30 Gbit/s.
        Gbps30 = raw::IBV_RATE_30_GBPS.0 => "30 Gbit/s",
        /// 40 Gbit/s.
        Gbps40 = raw::IBV_RATE_40_GBPS.0 => "40 Gbit/s",
        /// 60 Gbit/s.
        Gbps60 = raw::IBV_RATE_60_GBPS.0 => "60 Gbit/s",
        /// 80 Gbit/s.
        Gbps80 = raw::IBV_RATE_80_GBPS.0 => "80 Gbit/s",
        /// 120 Gbit/s.
        Gbps120 = raw::IBV_RATE_120_GBPS.0 => "120 Gbit/s",
        /// 14.0625 Gbit/s, one lane of FDR.
        Gbps14 = raw::IBV_RATE_14_GBPS.0 => "14 Gbit/s",
        /// 56.25 Gbit/s, four lanes of FDR.
        Gbps56 = raw::IBV_RATE_56_GBPS.0 => "56 Gbit/s",
        /// 112.5 Gbit/s, eight lanes of FDR.
        Gbps112 = raw::IBV_RATE_112_GBPS.0 => "112 Gbit/s",
        /// 168.75 Gbit/s, twelve lanes of FDR.
        Gbps168 = raw::IBV_RATE_168_GBPS.0 => "168 Gbit/s",
        /// 25.78125 Gbit/s, one lane of EDR.
        Gbps25 = raw::IBV_RATE_25_GBPS.0 => "25 Gbit/s",
        /// 103.125 Gbit/s, four lanes of EDR.
        Gbps100 = raw::IBV_RATE_100_GBPS.0 => "100 Gbit/s",
        /// 206.25 Gbit/s, eight lanes of EDR.
        Gbps200 = raw::IBV_RATE_200_GBPS.0 => "200 Gbit/s",
        /// 309.375 Gbit/s, twelve lanes of EDR.
        Gbps300 = raw::IBV_RATE_300_GBPS.0 => "300 Gbit/s",
        /// 28.125 Gbit/s, two lanes of FDR.
        Gbps28 = raw::IBV_RATE_28_GBPS.0 => "28 Gbit/s",
        /// 53.125 Gbit/s, one lane of HDR.
        Gbps50 = raw::IBV_RATE_50_GBPS.0 => "50 Gbit/s",
        /// 425 Gbit/s, eight lanes of HDR.
        Gbps400 = raw::IBV_RATE_400_GBPS.0 => "400 Gbit/s",
        /// 637.5 Gbit/s, twelve lanes of HDR.
        Gbps600 = raw::IBV_RATE_600_GBPS.0 => "600 Gbit/s",
        /// 850 Gbit/s, eight lanes of NDR.
        Gbps800 = raw::IBV_RATE_800_GBPS.0 => "800 Gbit/s",
        /// 1275 Gbit/s, twelve lanes of NDR.
        Gbps1200 = raw::IBV_RATE_1200_GBPS.0 => "1200 Gbit/s",
    }
}

impl StaticRate {
    /// `ibv_rate_to_mult(rate)` — returns the rate as a multiple of 2.5 Gbit/s, rounded if the name of the rate is
    /// rounded: the result is 11 for [`Gbps28`](Self::Gbps28) and 20 for [`Gbps50`](Self::Gbps50). Returns `None` for
    /// [`Max`](Self::Max), for 14, 25, 56, 100, 112, 168, 200 and 300 Gbit/s, and for unknown rates. Prefer
    /// [`to_mbps`](Self::to_mbps), which is exact for all but `Max` and unknown rates.
    ///
    /// # References
    ///
    /// [ibv_rate_to_mult(3)](https://man7.org/linux/man-pages/man3/ibv_rate_to_mult.3.html)
    #[doc(alias = "ibv_rate_to_mult")]
    pub fn to_mult(self) -> Option<u32> {
        u32::try_from(sys::ibv_rate_to_mult(raw(self.raw()))).ok()
    }

    /// `mult_to_ibv_rate(mult)` — returns the rate of `mult` times 2.5 Gbit/s, or `None` if there is no such rate.
    ///
    /// # References
    ///
    /// [ibv_rate_to_mult(3)](https://man7.org/linux/man-pages/man3/ibv_rate_to_mult.3.html)
    #[doc(alias = "mult_to_ibv_rate")]
    pub fn from_mult(mult: u32) -> Option<Self> {
        known(sys::mult_to_ibv_rate(mult.try_into().ok()?))
    }

    /// `ibv_rate_to_mbps(rate)` — returns the rate in Mbit/s, rounded down. Returns `None` for [`Max`](Self::Max) and
    /// unknown rates.
    ///
    /// # References
    ///
    /// [ibv_rate_to_mbps(3)](https://man7.org/linux/man-pages/man3/ibv_rate_to_mbps.3.html)
    #[doc(alias = "ibv_rate_to_mbps")]
    pub fn to_mbps(self) -> Option<u32> {
        u32::try_from(sys::ibv_rate_to_mbps(raw(self.raw()))).ok()
    }

    /// `mbps_to_ibv_rate(mbps)` — returns the rate of exactly `mbps` Mbit/s, or `None` if there is no such rate.
    ///
    /// # References
    ///
    /// [ibv_rate_to_mbps(3)](https://man7.org/linux/man-pages/man3/ibv_rate_to_mbps.3.html)
    #[doc(alias = "mbps_to_ibv_rate")]
    pub fn from_mbps(mbps: u32) -> Option<Self> {
        known(sys::mbps_to_ibv_rate(mbps.try_into().ok()?))
    }
}

/// The library returns `IBV_RATE_MAX` if no rate matches.
fn known(rate: raw) -> Option<StaticRate> {
    (rate != raw::IBV_RATE_MAX).then(|| StaticRate::from_raw(rate.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_convert_both_ways() {
        for &rate in StaticRate::KNOWN {
            if rate == StaticRate::Max {
                assert_eq!((rate.to_mult(), rate.to_mbps()), (None, None));
                continue;
            }
            let mbps = rate.to_mbps().unwrap();
            assert_eq!(StaticRate::from_mbps(mbps), Some(rate));
            assert!(rate.to_mult().is_none_or(|mult| StaticRate::from_mult(mult) == Some(rate)), "{rate}");
        }
        assert_eq!((StaticRate::Gbps10.to_mult(), StaticRate::Gbps100.to_mbps()), (Some(4), Some(103_125)));
        assert_eq!((StaticRate::from_mbps(7), StaticRate::from_mult(u32::MAX)), (None, None));
        assert_eq!(StaticRate::from_raw(200).to_mbps(), None);
    }
}
