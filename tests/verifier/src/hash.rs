//! XXH3, 128 bits, without seed, of 17 to 128 bytes: what the digest of a state is made of. Written from the algorithm's
//! description, so that the witness does not trust the host's library.

const PRIMES: [u64; 4] = [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_6791_9e37_79f9, 0x85eb_ca77_c2b2_ae63];

/// The first 128 bytes of the algorithm's secret.
const SECRET: [u8; 128] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d,
    0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0,
    0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0,
    0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b,
    0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac,
    0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51,
    0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
];

/// The hash. Panics with fewer than 17 or more than 128 bytes.
pub fn xxh3_128(bytes: &[u8]) -> u128 {
    assert!((17..=128).contains(&bytes.len()), "{} bytes", bytes.len());
    let length = bytes.len() as u64;
    let (mut low, mut high) = (length.wrapping_mul(PRIMES[0]), 0u64);
    // Pairs of 16 bytes, from the middle outwards, each with its own part of the secret.
    for pair in (0..(bytes.len() - 1) / 32 + 1).rev() {
        let (front, back) = (&bytes[16 * pair..], &bytes[bytes.len() - 16 * (pair + 1)..]);
        let secret = &SECRET[32 * pair..];
        low = low.wrapping_add(mixed(front, secret)) ^ word(back, 0).wrapping_add(word(back, 8));
        high = high.wrapping_add(mixed(back, &secret[16..])) ^ word(front, 0).wrapping_add(word(front, 8));
    }
    let first = low.wrapping_add(high);
    let second = low
        .wrapping_mul(PRIMES[0])
        .wrapping_add(high.wrapping_mul(PRIMES[3]))
        .wrapping_add(length.wrapping_mul(PRIMES[1]));
    u128::from(avalanche(second).wrapping_neg()) << 64 | u128::from(avalanche(first))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn mixed(bytes: &[u8], secret: &[u8]) -> u64 {
    let product = u128::from(word(bytes, 0) ^ word(secret, 0)) * u128::from(word(bytes, 8) ^ word(secret, 8));
    product as u64 ^ (product >> 64) as u64
}

fn avalanche(mut hash: u64) -> u64 {
    hash ^= hash >> 37;
    hash = hash.wrapping_mul(PRIMES[2]);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_reference() {
        // Of 0, 7, 14 and so on, modulo 256.
        let check = |length: usize, expected: u128| {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            assert_eq!(xxh3_128(&bytes), expected, "{length} bytes");
        };
        check(17, 0x263f_67af_6308_8041_735f_e434_ded9_0c3c);
        check(33, 0xa943_d80c_e26e_d292_8b59_b4df_ba3c_9de4);
        check(42, 0x5c54_3f0d_168f_705d_3dae_690c_40d4_b2fe);
        check(96, 0xdbfa_0cd6_e568_ef54_acb9_f096_7e18_2865);
        check(128, 0xdd9e_5aa9_bd51_cc9c_c6bd_21ec_c865_f29f);
    }
}
