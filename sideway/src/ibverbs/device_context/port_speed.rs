//! The speed of a link.

use crate::ffi::open_enum;

open_enum! {
    /// The speed of one lane of a link. The constants have the InfiniBand names of the speeds.
    ///
    /// Ethernet drivers report the closest InfiniBand speed and width.
    pub enum PortSpeed {
        /// 2.5 Gbit/s on the line.
        Sdr = 1 => "SDR",
        /// 5 Gbit/s on the line.
        Ddr = 2 => "DDR",
        /// 10 Gbit/s on the line.
        Qdr = 4 => "QDR",
        /// 10.3125 Gbit/s on the line, with the 64b/66b code of FDR.
        Fdr10 = 8 => "FDR10",
        /// 14.0625 Gbit/s on the line.
        Fdr = 16 => "FDR",
        /// 25.78125 Gbit/s on the line.
        Edr = 32 => "EDR",
        /// 53.125 Gbit/s on the line.
        Hdr = 64 => "HDR",
        /// 106.25 Gbit/s on the line.
        Ndr = 128 => "NDR",
        /// 212.5 Gbit/s on the line.
        Xdr = 256 => "XDR",
    }
    renamed {
        SingleDataRate => Sdr, "named `Sdr`";
        DoubleDataRate => Ddr, "named `Ddr`";
        QuadrupleDataRate => Qdr, "named `Qdr`";
        FourteenDataRateTen => Fdr10, "named `Fdr10`";
        FourteenDataRate => Fdr, "named `Fdr`";
        EnhancedDataRate => Edr, "named `Edr`";
        HighDataRate => Hdr, "named `Hdr`";
        NextDataRate => Ndr, "named `Ndr`";
        ExtendedDataRate => Xdr, "named `Xdr`";
    }
}

impl PortSpeed {
    /// Returns the signaling rate per lane in Gbit/s, or `None` for an unknown speed.
    pub const fn to_signaling_rate(self) -> Option<f64> {
        Some(match self {
            Self::Sdr => 2.5,
            Self::Ddr => 5.0,
            Self::Qdr => 10.0,
            Self::Fdr10 => 10.3125,
            Self::Fdr => 14.0625,
            Self::Edr => 25.78125,
            Self::Hdr => 53.125,
            Self::Ndr => 106.25,
            Self::Xdr => 212.5,
            _ => return None,
        })
    }

    /// Returns the data rate per lane in Gbit/s, without the overhead of line code and error correction. Returns `None`
    /// for an unknown speed.
    pub const fn to_throughput(self) -> Option<f64> {
        Some(match self {
            // 8b/10b.
            Self::Sdr => 2.0,
            Self::Ddr => 4.0,
            Self::Qdr => 8.0,
            // 64b/66b.
            Self::Fdr10 => 10.0,
            Self::Fdr => 14.0625 * 64.0 / 66.0,
            Self::Edr => 25.0,
            // These speeds use 256b/257b, and 514 of 544 symbols carry data.
            Self::Hdr => 50.0,
            Self::Ndr => 100.0,
            Self::Xdr => 200.0,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_speed_has_data_rate_below_signaling_rate() {
        for &speed in PortSpeed::KNOWN {
            let (line, data) = (speed.to_signaling_rate().unwrap(), speed.to_throughput().unwrap());
            assert!(data < line && data > line * 0.79, "{speed}: {data} of {line}");
        }
    }

    #[test]
    fn unknown_speed_prints_without_rates() {
        let speed = PortSpeed::from_raw(512);
        assert_eq!((speed.to_signaling_rate(), speed.to_throughput()), (None, None));
        assert_eq!(speed.to_string(), "unknown (512)");
        assert_eq!(PortSpeed::from_raw(0).to_throughput(), None);
    }
}
