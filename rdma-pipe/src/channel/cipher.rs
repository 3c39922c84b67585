//! AES-256-GCM, with the fastest implementation that the processor supports.

use aes_gcm::aead::AeadInPlace;
use aes_gcm::aead::generic_array::GenericArray;
use aes_gcm::{Aes256Gcm, KeyInit};
use graviola::aead::AesGcm;

/// Length of an authentication tag, in bytes.
pub(super) const TAG: usize = 16;

/// An expanded key, in the form that the selected implementation needs.
pub(super) enum Cipher {
    /// Encrypts several AES blocks at once, and authenticates them while it encrypts the next ones. This is three times
    /// as fast as `Portable`.
    Stitched(Box<AesGcm>),
    Portable(Box<Aes256Gcm>),
}

impl Cipher {
    pub(super) fn new(key: &[u8; 32]) -> Cipher {
        if is_stitched() { Cipher::Stitched(Box::new(AesGcm::new(key))) } else { Cipher::portable(key) }
    }

    fn portable(key: &[u8; 32]) -> Cipher {
        Cipher::Portable(Box::new(Aes256Gcm::new(key.into())))
    }

    /// Encrypts bytes in place, and returns their authentication tag.
    pub(super) fn seal(&self, nonce: &[u8; 12], extra: &[u8], bytes: &mut [u8]) -> [u8; TAG] {
        let mut tag = [0; TAG];
        match self {
            Cipher::Stitched(cipher) => cipher.encrypt(nonce, extra, bytes, &mut tag),
            Cipher::Portable(cipher) => {
                // Encryption fails only for more than 64 GiB. The tag then stays zero, so the peer rejects the message.
                if let Ok(sealed) = cipher.encrypt_in_place_detached(nonce.into(), extra, bytes) {
                    tag = sealed.into();
                }
            }
        }
        tag
    }

    /// Decrypts bytes in place, and returns whether this is their authentication tag.
    pub(super) fn open(&self, nonce: &[u8; 12], extra: &[u8], bytes: &mut [u8], tag: &[u8; TAG]) -> bool {
        match self {
            Cipher::Stitched(cipher) => cipher.decrypt(nonce, extra, bytes, tag).is_ok(),
            Cipher::Portable(cipher) => {
                cipher.decrypt_in_place_detached(nonce.into(), extra, bytes, GenericArray::from_slice(tag)).is_ok()
            }
        }
    }
}

/// Whether the processor has all instructions that graviola requires. graviola panics if one of them is missing.
fn is_stitched() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("adx");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("neon")
        && std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
        && std::arch::is_aarch64_feature_detected!("sha2");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_implementations_open_what_the_other_sealed() {
        if !is_stitched() {
            eprintln!("DID NOT RUN: the processor has one implementation only");
            return;
        }
        let key = std::array::from_fn(|at| at as u8);
        let both = [Cipher::new(&key), Cipher::portable(&key)];
        for length in [0, 1, 15, 16, 17, 255, 4096, 70_001] {
            let text: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let sealed = both.each_ref().map(|cipher| {
                let mut bytes = text.clone();
                let tag = cipher.seal(&[3; 12], &[1], &mut bytes);
                (bytes, tag)
            });
            assert!(sealed[0] == sealed[1], "{length} bytes");
            for cipher in &both {
                let (mut bytes, mut tag) = sealed[0].clone();
                assert!(cipher.open(&[3; 12], &[1], &mut bytes, &tag) && bytes == text, "{length} bytes");
                tag[15] ^= 1;
                assert!(!cipher.open(&[3; 12], &[1], &mut sealed[0].0.clone(), &tag), "{length} bytes");
            }
        }
    }
}
