//! Enums of C values as newtypes, so that values unknown to this crate are legal and can be printed.

/// Defines a newtype over `u32` with one associated constant per known value.
///
/// `Debug` prints the constant's name. `Display` prints the text after `=>`, or the name if there is none. Both print
/// an unknown value as its number. The constants can be used as patterns. `renamed` lists names of sideway 0.4, each
/// with its new name and the deprecation message.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Name:ident {
            $( $(#[$vmeta:meta])* $Variant:ident = $value:expr $(=> $text:literal)? ),+ $(,)?
        }
        $( renamed { $( $Old:ident => $New:ident, $note:literal; )+ } )?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        $vis struct $Name(u32);

        #[expect(non_upper_case_globals, reason = "the constants read like enum variants")]
        impl $Name {
            $( $(#[$vmeta])* pub const $Variant: Self = Self($value as u32); )+
            $($(
                /// The name in sideway 0.4.
                #[deprecated(since = "0.5.0", note = $note)]
                pub const $Old: Self = Self::$New;
            )+)?

            /// All values that have a name in this version of the crate.
            pub const KNOWN: &'static [Self] = &[$(Self::$Variant),+];

            /// Wraps a C value; any value is legal.
            #[inline]
            pub const fn from_raw(value: u32) -> Self {
                Self(value)
            }

            /// Returns the C value.
            #[inline]
            pub const fn raw(self) -> u32 {
                self.0
            }

            /// Returns the constant's name, or `None` for a value unknown to this version of the crate.
            pub const fn name(self) -> Option<&'static str> {
                $( if self.0 == $value as u32 { return Some(stringify!($Variant)); } )+
                None
            }
        }

        impl From<u32> for $Name {
            #[inline]
            fn from(value: u32) -> Self {
                Self(value)
            }
        }

        impl From<$Name> for u32 {
            #[inline]
            fn from(value: $Name) -> Self {
                value.0
            }
        }

        impl std::fmt::Debug for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, concat!(stringify!($Name), "({})"), self.0),
                }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $( $( if *self == Self::$Variant { return f.pad($text); } )? )+
                match self.name() {
                    Some(name) => f.pad(name),
                    None => f.pad(&format!("unknown ({})", self.0)),
                }
            }
        }
    };
}

pub(crate) use open_enum;

#[cfg(test)]
mod tests {
    #![expect(unreachable_pub, reason = "the macro makes its items public")]

    open_enum! {
        /// An enum for the test.
        enum Fruit {
            /// One.
            Apple = 1 => "an apple",
            /// Two.
            Pear = 2,
        }
        renamed {
            Birne => Pear, "named `Pear`";
        }
    }

    #[test]
    fn known_value_prints_name_and_text() {
        assert_eq!(format!("{:?} {}", Fruit::Apple, Fruit::Apple), "Apple an apple");
        assert_eq!(format!("{:?} {}", Fruit::Pear, Fruit::Pear), "Pear Pear");
        assert_eq!(Fruit::KNOWN, [Fruit::Apple, Fruit::Pear]);
    }

    #[test]
    fn unknown_value_round_trips_and_prints_number() {
        let unknown = Fruit::from_raw(u32::MAX);
        assert_eq!((unknown.raw(), u32::from(unknown), Fruit::from(u32::MAX)), (u32::MAX, u32::MAX, unknown));
        assert_eq!(unknown.name(), None);
        assert_eq!(format!("{unknown:?} {unknown}"), "Fruit(4294967295) unknown (4294967295)");
        assert_eq!(format!("{unknown:>22}|"), "  unknown (4294967295)|");
    }

    #[test]
    #[expect(deprecated, reason = "the test covers deprecated names")]
    fn renamed_constant_equals_and_prints_new_name() {
        assert_eq!(format!("{:?} {}", Fruit::Birne, Fruit::KNOWN.len()), "Pear 2");
    }

    #[test]
    fn constants_are_patterns() {
        let named = |fruit| match fruit {
            Fruit::Apple => "apple",
            Fruit::Pear => "pear",
            _ => "another",
        };
        assert_eq!(
            [named(Fruit::Apple), named(Fruit::from_raw(2)), named(Fruit::from_raw(9))],
            ["apple", "pear", "another"]
        );
    }
}
