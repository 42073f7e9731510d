//! The token of a commit: it stands in the metadata of the committed offset and in the changelog, and a task starts
//! only when both are the same (reliability 4.1).
//!
//! Text, below 200 bytes: `1;<sequence>;<nonce, 16 hex>;<watermark>;<entries>;<digest, 32 hex>`.

use std::fmt;

/// A token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// Rises by one with every commit of the task.
    pub sequence: u64,
    /// Another one for every attempt.
    pub nonce: u64,
    /// Watermark over event time, ns since 1970.
    pub watermark: i64,
    /// Entries and marks of all stages.
    pub entries: u64,
    /// Digest over them.
    pub digest: u128,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Token { sequence, nonce, watermark, entries, digest } = self;
        write!(f, "1;{sequence};{nonce:016x};{watermark};{entries};{digest:032x}")
    }
}

impl Token {
    /// Reads a token; `None`: it is none, somebody else wrote there.
    pub fn parse(text: &[u8]) -> Option<Token> {
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.split(';');
        if parts.next()? != "1" {
            return None;
        }
        let token = Token {
            sequence: parts.next()?.parse().ok()?,
            nonce: u64::from_str_radix(parts.next()?, 16).ok()?,
            watermark: parts.next()?.parse().ok()?,
            entries: parts.next()?.parse().ok()?,
            digest: u128::from_str_radix(parts.next()?, 16).ok()?,
        };
        // What reads otherwise than it is written is not ours.
        (parts.next().is_none() && token.to_string() == text).then_some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_as_it_is_written() {
        let tokens = [
            Token::default(),
            Token { sequence: u64::MAX, nonce: 1, watermark: i64::MIN, entries: 7, digest: u128::MAX },
        ];
        for token in tokens {
            let text = token.to_string();
            assert!(text.len() < 200, "{text}");
            assert_eq!(Token::parse(text.as_bytes()), Some(token), "{text}");
        }
    }

    #[test]
    fn what_others_wrote_is_no_token() {
        let good = Token { sequence: 3, ..Token::default() }.to_string();
        for text in ["", "2;1;1;1;1;1", "1;2;3;4;5;6", "NaN", &good[1..], &format!("{good};"), &format!("{good} ")] {
            assert_eq!(Token::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Token::parse(&[0xff, 0xfe]), None);
    }
}
