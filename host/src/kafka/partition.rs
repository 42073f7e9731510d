//! To which partition a key goes: the Java client's murmur2.

/// The partition of a key among `count`, as the Java client's default partitioner chooses it.
pub fn of_key(key: &[u8], count: i32) -> i32 {
    let positive = (murmur2(key) & 0x7fff_ffff) as i32;
    positive.checked_rem(count).unwrap_or(0)
}

/// The hash of `org.apache.kafka.common.utils.Utils`: 32-bit murmur2 with its own seed.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut h = SEED ^ data.len() as u32;
    let mut blocks = data.chunks_exact(4);
    for block in &mut blocks {
        let mut k = block.iter().rev().fold(0u32, |k, &byte| k << 8 | u32::from(byte));
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        k = k.wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    let rest = blocks.remainder();
    if !rest.is_empty() {
        h ^= rest.iter().rev().fold(0u32, |k, &byte| k << 8 | u32::from(byte));
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ h >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, expected: i32) {
        assert_eq!(murmur2(key.as_bytes()) as i32, expected, "{key}");
    }

    #[test]
    fn hashes_are_those_of_the_java_client() {
        // From the tests of the Java client.
        check("21", -973_932_308);
        check("foobar", -790_332_482);
        check("a-little-bit-long-string", -985_981_536);
        check("a-little-bit-longer-string", -1_486_304_829);
        check("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971);
        check("abc", 479_470_107);
    }

    #[test]
    fn every_key_has_a_partition() {
        for count in 1..20 {
            for key in ["", "a", "21", "foobar"] {
                assert!((0..count).contains(&of_key(key.as_bytes(), count)), "{key} of {count}");
            }
        }
        assert_eq!(of_key(b"a", 0), 0);
    }
}
