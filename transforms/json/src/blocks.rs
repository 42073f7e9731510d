//! What a block of 64 bytes holds, one bit a byte: the only place with vector instructions.
//!
//! The three versions answer alike: WebAssembly SIMD in guests, SSE2 (which every x86-64 has) natively, plain code
//! elsewhere. A test holds the plain version against the one in use.

/// Bytes in a block.
pub const BLOCK: usize = 64;

/// What a scan needs to know of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Quotes, bit n for byte n.
    pub quotes: u64,
    /// There is a backslash, a control character, or a byte that is not ASCII.
    pub special: bool,
}

/// Where the special bytes of a block are, bit n for byte n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Specials {
    /// Backslashes.
    pub backslashes: u64,
    /// Control characters.
    pub control: u64,
    /// Bytes that are not ASCII.
    pub wide: u64,
}

/// Reads a block.
#[inline(always)]
pub fn read(block: &[u8; BLOCK]) -> Block {
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    return wasm::read(block);
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    return sse2(block);
    #[allow(unreachable_code)]
    plain(block)
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline(always)]
#[allow(unsafe_code)]
fn sse2(block: &[u8; BLOCK]) -> Block {
    // SAFETY: this function exists only where the whole program is compiled for SSE2, which is all that is asked.
    unsafe { sse2::read(block) }
}

/// Reads a block that has special bytes; few have.
#[inline(always)]
pub fn specials(block: &[u8; BLOCK]) -> Specials {
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    return wasm::specials(block);
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    return sse2_specials(block);
    #[allow(unreachable_code)]
    plain_specials(block)
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline(always)]
#[allow(unsafe_code)]
fn sse2_specials(block: &[u8; BLOCK]) -> Specials {
    // SAFETY: as for `sse2`.
    unsafe { sse2::specials(block) }
}

/// Without vectors.
#[inline]
pub fn plain(block: &[u8; BLOCK]) -> Block {
    let special = block.iter().fold(false, |found, &byte| found | (byte == b'\\') | !byte.is_ascii() | (byte < 0x20));
    Block { quotes: positions(block, |byte| byte == b'"'), special }
}

/// As `plain`, for `specials`.
#[inline]
pub fn plain_specials(block: &[u8; BLOCK]) -> Specials {
    Specials {
        backslashes: positions(block, |byte| byte == b'\\'),
        control: positions(block, |byte| byte < 0x20),
        wide: positions(block, |byte| byte >= 0x80),
    }
}

fn positions(block: &[u8; BLOCK], wanted: impl Fn(u8) -> bool) -> u64 {
    block.iter().enumerate().fold(0, |mask, (at, &byte)| mask | u64::from(wanted(byte)) << at)
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm {
    use super::{BLOCK, Block, Specials};
    use core::arch::wasm32::{
        i8x16_bitmask, i8x16_eq, i8x16_lt, i8x16_min, i8x16_splat, v128, v128_any_true, v128_load, v128_or,
    };

    /// Sixteen bytes of a block.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn load<const AT: usize>(block: &[u8; BLOCK]) -> v128 {
        const { assert!(AT + 16 <= BLOCK) };
        // SAFETY: AT + 16 is at most 64, the length of the block, and the load needs no alignment.
        unsafe { v128_load(block.as_ptr().add(AT).cast()) }
    }

    /// A bit for each byte that the comparison holds for.
    #[inline(always)]
    fn bits([a, b, c, d]: [v128; 4], compare: impl Fn(v128) -> v128) -> u64 {
        let bits = |v: v128| u64::from(i8x16_bitmask(compare(v)));
        bits(a) | bits(b) << 16 | bits(c) << 32 | bits(d) << 48
    }

    #[inline(always)]
    pub(super) fn specials(block: &[u8; BLOCK]) -> Specials {
        let all = [load::<0>(block), load::<16>(block), load::<32>(block), load::<48>(block)];
        let (slash, space) = (i8x16_splat(b'\\' as i8), i8x16_splat(0x20));
        let wide = bits(all, |v| v);
        let control = bits(all, |v| i8x16_lt(v, space)) & !wide;
        Specials { backslashes: bits(all, |v| i8x16_eq(v, slash)), control, wide }
    }

    #[inline(always)]
    pub(super) fn read(block: &[u8; BLOCK]) -> Block {
        let (a, b, c, d) = (load::<0>(block), load::<16>(block), load::<32>(block), load::<48>(block));
        let quote = i8x16_splat(b'"' as i8);
        let quotes = bits([a, b, c, d], |v| i8x16_eq(v, quote));
        // As signed numbers, control characters and bytes beyond ASCII are those below a space.
        let low = i8x16_lt(i8x16_min(i8x16_min(a, b), i8x16_min(c, d)), i8x16_splat(0x20));
        let slash = i8x16_splat(b'\\' as i8);
        let slashes =
            v128_or(v128_or(i8x16_eq(a, slash), i8x16_eq(b, slash)), v128_or(i8x16_eq(c, slash), i8x16_eq(d, slash)));
        Block { quotes, special: v128_any_true(v128_or(low, slashes)) }
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod sse2 {
    use super::{BLOCK, Block, Specials};
    use core::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmplt_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    };

    /// Sixteen bytes of a block.
    #[inline]
    #[target_feature(enable = "sse2")]
    #[allow(unsafe_code)]
    fn load<const AT: usize>(block: &[u8; BLOCK]) -> __m128i {
        const { assert!(AT + 16 <= BLOCK) };
        // SAFETY: AT + 16 is at most 64, the length of the block, and the load needs no alignment.
        unsafe { _mm_loadu_si128(block.as_ptr().add(AT).cast()) }
    }

    /// The high bit of each byte.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn bits([a, b, c, d]: [__m128i; 4]) -> u64 {
        let bits = |v: __m128i| u64::from(_mm_movemask_epi8(v) as u16);
        bits(a) | bits(b) << 16 | bits(c) << 32 | bits(d) << 48
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn specials(block: &[u8; BLOCK]) -> Specials {
        let all = [load::<0>(block), load::<16>(block), load::<32>(block), load::<48>(block)];
        let (slash, space) = (_mm_set1_epi8(b'\\' as i8), _mm_set1_epi8(0x20));
        let wide = bits(all);
        let control = bits(all.map(|v| _mm_cmplt_epi8(v, space))) & !wide;
        Specials { backslashes: bits(all.map(|v| _mm_cmpeq_epi8(v, slash))), control, wide }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn read(block: &[u8; BLOCK]) -> Block {
        let (a, b, c, d) = (load::<0>(block), load::<16>(block), load::<32>(block), load::<48>(block));
        let quote = _mm_set1_epi8(b'"' as i8);
        let quotes = bits([
            _mm_cmpeq_epi8(a, quote),
            _mm_cmpeq_epi8(b, quote),
            _mm_cmpeq_epi8(c, quote),
            _mm_cmpeq_epi8(d, quote),
        ]);
        // As signed numbers, control characters and bytes beyond ASCII are those below a space.
        let (slash, space) = (_mm_set1_epi8(b'\\' as i8), _mm_set1_epi8(0x20));
        let odd = |v: __m128i| _mm_or_si128(_mm_cmpeq_epi8(v, slash), _mm_cmplt_epi8(v, space));
        let any = _mm_or_si128(_mm_or_si128(odd(a), odd(b)), _mm_or_si128(odd(c), odd(d)));
        Block { quotes, special: _mm_movemask_epi8(any) != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_answers_as_the_plain_one() {
        for byte in 0..=255u8 {
            for at in [0, 1, 15, 16, 31, 32, 47, 48, 62, 63] {
                let mut block = [b'a'; BLOCK];
                block[at] = byte;
                assert_eq!(read(&block), plain(&block), "byte {byte} at {at}");
                assert_eq!(read(&block).special, byte < 0x20 || !byte.is_ascii() || byte == b'\\');
                assert_eq!(specials(&block), plain_specials(&block), "byte {byte} at {at}");
            }
        }
    }
}
