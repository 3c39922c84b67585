//! Codecs, which encode arguments and results as bytes.

use std::fmt;

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

/// An encoding of values. Each request contains the codec's `ID`; a peer that uses another codec rejects the request.
pub trait Codec {
    /// The number of the codec, from 0 to 15. Programs can define codecs with the numbers 8 to 15.
    const ID: u8;
}

/// Encodes values of a type.
pub trait Encode<T: ?Sized>: Codec {
    /// Appends the bytes of a value.
    ///
    /// # Errors
    ///
    /// [`CodecError`]
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError>;
}

/// Decodes values of a type. The values may borrow from the encoded bytes.
pub trait Decode<'b, T>: Codec {
    /// Decodes a value.
    ///
    /// # Errors
    ///
    /// [`CodecError`]
    fn decode(bytes: &'b [u8]) -> Result<T, CodecError>;
}

/// The error for values that cannot be encoded, and for bytes that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecError(pub String);

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CodecError {}

/// The default codec. It uses `postcard`, and encodes all types that `serde` supports. Fields are identified by
/// position, so both sides must declare the same types.
#[derive(Clone, Copy, Debug)]
pub struct Postcard;

impl Codec for Postcard {
    const ID: u8 = 0;
}

impl<T: Serialize + ?Sized> Encode<T> for Postcard {
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        postcard::serialize_with_flavor(value, Writer(out)).map_err(|error| CodecError(error.to_string()))
    }
}

impl<'b, T: Deserialize<'b>> Decode<'b, T> for Postcard {
    fn decode(bytes: &'b [u8]) -> Result<T, CodecError> {
        postcard::from_bytes(bytes).map_err(|error| CodecError(error.to_string()))
    }
}

struct Writer<'o>(&'o mut Vec<u8>);

impl Flavor for Writer<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// The codec for Protocol Buffers. The argument, the result and the error of a method must each be one `prost` message.
#[cfg(feature = "prost")]
#[derive(Clone, Copy, Debug)]
pub struct Protobuf;

#[cfg(feature = "prost")]
impl Codec for Protobuf {
    const ID: u8 = 2;
}

#[cfg(feature = "prost")]
impl<T: prost::Message> Encode<T> for Protobuf {
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        value.encode(out).map_err(|error| CodecError(error.to_string()))
    }
}

#[cfg(feature = "prost")]
impl<T: prost::Message + Default> Decode<'_, T> for Protobuf {
    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        T::decode(bytes).map_err(|error| CodecError(error.to_string()))
    }
}

/// The codec that uses `rkyv`. Decoding checks the bytes, then copies them into values. In 2026, several defects in
/// these checks were found, so use this codec with trusted peers only.
#[cfg(feature = "rkyv")]
#[derive(Clone, Copy, Debug)]
pub struct Rkyv;

#[cfg(feature = "rkyv")]
impl Codec for Rkyv {
    const ID: u8 = 3;
}

#[cfg(feature = "rkyv")]
mod archive {
    use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
    use rkyv::bytecheck::CheckBytes;
    use rkyv::rancor::Error;
    use rkyv::ser::allocator::ArenaHandle;
    use rkyv::util::AlignedVec;
    use rkyv::{Archive, Deserialize, Serialize};

    use super::{CodecError, Decode, Encode, Rkyv};

    impl<T> Encode<T> for Rkyv
    where
        T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, Error>>,
    {
        fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
            let bytes = rkyv::to_bytes::<Error>(value).map_err(|error| CodecError(error.to_string()))?;
            out.extend_from_slice(&bytes);
            Ok(())
        }
    }

    impl<T> Decode<'_, T> for Rkyv
    where
        T: Archive,
        T::Archived: for<'a> CheckBytes<HighValidator<'a, Error>> + Deserialize<T, HighDeserializer<Error>>,
    {
        fn decode(bytes: &[u8]) -> Result<T, CodecError> {
            // Archived values must be aligned in memory.
            let mut aligned = AlignedVec::<16>::with_capacity(bytes.len());
            aligned.extend_from_slice(bytes);
            rkyv::from_bytes::<T, Error>(&aligned).map_err(|error| CodecError(error.to_string()))
        }
    }
}

/// The codec that leaves bytes unchanged. Its methods have exactly one argument.
#[derive(Clone, Copy, Debug)]
pub struct Raw;

impl Codec for Raw {
    const ID: u8 = 1;
}

impl<T: AsRef<[u8]> + ?Sized> Encode<T> for Raw {
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value.as_ref());
        Ok(())
    }
}

impl<'b> Decode<'b, &'b [u8]> for Raw {
    fn decode(bytes: &'b [u8]) -> Result<&'b [u8], CodecError> {
        Ok(bytes)
    }
}

impl<'b> Decode<'b, Vec<u8>> for Raw {
    fn decode(bytes: &'b [u8]) -> Result<Vec<u8>, CodecError> {
        Ok(bytes.to_vec())
    }
}
