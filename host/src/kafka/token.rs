//! The token of a commit: it stands in the metadata of the committed offset and in the changelog, and a task starts
//! only when both are the same (reliability 4.1).
//!
//! Text, below 200 bytes: `1;<sequence>;<nonce, 16 hex>;<watermark>;<entries>;<digest, 32 hex>`.

use std::fmt;

use crate::worker::Became;

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

/// What this process knows of a task's commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Token of the last commit that is durable; the default one: there was none.
    pub last: Token,
    /// Where reading began without one.
    pub begin: i64,
    /// Token of the commit that was tried since, of which it is not known whether it is durable.
    pub tried: Option<Token>,
}

impl Known {
    /// What became of it, by the token beside the position (reliability 4.2, step 7); none: somebody else has committed since, and no state in memory is the right one. The token must
    /// have been read when no transaction with a position of the task was open.
    pub fn became(&self, found: Option<&Token>) -> Option<Became> {
        match found {
            None if self.last == Token::default() => Some(Became::Nothing),
            Some(found) if self.tried.as_ref() == Some(found) => Some(Became::Durable),
            Some(found) if self.last == *found => Some(Became::Nothing),
            _ => None,
        }
    }
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
    fn the_token_beside_the_position_says_what_became_of_a_commit() {
        let token = |sequence, nonce| Token { sequence, nonce, ..Token::default() };
        let known = Known { last: token(4, 1), begin: 0, tried: Some(token(5, 2)) };
        let check = |known: &Known, found: Option<Token>, expected| {
            assert_eq!(known.became(found.as_ref()), expected, "{known:?} {found:?}");
        };
        check(&known, Some(token(4, 1)), Some(Became::Nothing));
        check(&known, Some(token(5, 2)), Some(Became::Durable));
        // Another process has come as far, or the position was taken away.
        check(&known, Some(token(5, 3)), None);
        check(&known, Some(token(6, 2)), None);
        check(&known, None, None);
        let first = Known { tried: Some(token(1, 9)), ..Known::default() };
        check(&first, None, Some(Became::Nothing));
        check(&first, Some(token(1, 9)), Some(Became::Durable));
        check(&first, Some(token(1, 8)), None);
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
