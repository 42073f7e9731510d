//! The key of a row (rules K1-K15): canonical bytes from typed cells, hashed. Equal keys have equal bytes; nothing else
//! has. Also what follows from the same bytes: the column `content`, and the key of upsert output (O6).

use std::borrow::Cow;

use tamis_guest::document::{Builder, Doc, Node};
use tamis_guest::number;
use unicode_normalization::UnicodeNormalization;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::batch::{Cell, kind};
use crate::config::path::{Path, Step};
use crate::config::pipeline::{Key, Normalize, ReadAs};

/// How parts compare.
#[derive(Clone, Copy, Debug, Default)]
pub struct Comparison {
    /// A missing part or member is not the same as null (K4).
    pub missing_distinct: bool,
    /// Numbers compare by type and value (K5).
    pub typed_numbers: bool,
    /// Normalisation of text (K7).
    pub normalize: Option<Normalize>,
    /// Full case folding of text (K7).
    pub casefold: bool,
}

impl Comparison {
    /// The options of a key.
    pub fn of(key: &Key) -> Comparison {
        Comparison {
            missing_distinct: key.missing_distinct,
            typed_numbers: key.typed_numbers,
            normalize: key.normalize,
            casefold: key.casefold,
        }
    }
}

// Tags of the canonical form. Every part is self-delimiting, so a tuple is its parts one after the other (K1).
const NULL: u8 = 0;
const MISSING: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const NUMBER: u8 = 4;
const TEXT: u8 = 5;
const BYTES: u8 = 6;
const TIMESTAMP: u8 = 7;
const DATE: u8 = 8;
const TIME_OF_DAY: u8 = 9;
const ARRAY: u8 = 10;
const OBJECT: u8 = 11;
const FLOATING: u8 = 12;

/// Hash of canonical bytes: xxh3-128 under the salt of the task (K13).
pub fn hash(canonical: &[u8], salt: u64) -> u128 {
    xxh3_128_with_seed(canonical, salt)
}

/// Appends the canonical form of a cell.
pub fn canonical(cell: Cell<'_>, how: &Comparison, into: &mut Vec<u8>) {
    match cell.kind {
        kind::MISSING if how.missing_distinct => into.push(MISSING),
        kind::MISSING | kind::NULL => into.push(NULL),
        kind::BOOLEAN => into.push(if cell.bytes.first() == Some(&1) { TRUE } else { FALSE }),
        kind::TEXT => text(cell.bytes, how, into),
        kind::BYTES => delimited(BYTES, cell.bytes, into),
        kind::NUMBER | kind::INT64..=kind::INT8 | kind::FLOAT64 | kind::FLOAT32 => exact(cell, how, into),
        kind::TIMESTAMP => delimited(TIMESTAMP, cell.bytes, into),
        kind::DATE => delimited(DATE, cell.bytes, into),
        kind::TIME_OF_DAY => delimited(TIME_OF_DAY, cell.bytes, into),
        _ => match Doc::unchecked(cell.bytes) {
            Ok(doc) => document(doc.root(), &[], how, into),
            Err(_) => into.push(NULL),
        },
    }
}

/// Appends the canonical form of a document without some of its paths (K10).
pub fn canonical_without(cell: Cell<'_>, except: &[Vec<Step>], how: &Comparison, into: &mut Vec<u8>) {
    match (cell.kind >= kind::ARRAY).then(|| Doc::unchecked(cell.bytes)) {
        Some(Ok(doc)) => {
            let except: Vec<&[Step]> = except.iter().map(Vec::as_slice).collect();
            document(doc.root(), &except, how, into);
        }
        _ => canonical(cell, how, into),
    }
}

fn delimited(tag: u8, bytes: &[u8], into: &mut Vec<u8>) {
    into.push(tag);
    into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    into.extend_from_slice(bytes);
}

fn text(bytes: &[u8], how: &Comparison, into: &mut Vec<u8>) {
    if how.normalize.is_none() && !how.casefold {
        return delimited(TEXT, bytes, into);
    }
    let text = String::from_utf8_lossy(bytes);
    delimited(TEXT, folded(&text, how).as_bytes(), into);
}

/// Text as it is compared (K7): normalised, folded, normalised again.
pub fn folded<'a>(text: &'a str, how: &Comparison) -> Cow<'a, str> {
    let normal = |text: &str| -> String {
        match how.normalize {
            Some(Normalize::Nfc) => text.nfc().collect(),
            Some(Normalize::Nfkc) => text.nfkc().collect(),
            None => text.to_owned(),
        }
    };
    match (how.normalize, how.casefold) {
        (None, false) => Cow::Borrowed(text),
        (_, false) => Cow::Owned(normal(text)),
        (_, true) => Cow::Owned(normal(&caseless::default_case_fold_str(&normal(text)))),
    }
}

fn exact(cell: Cell<'_>, how: &Comparison, into: &mut Vec<u8>) {
    let mut digits = Vec::new();
    let float = match cell.kind {
        kind::NUMBER => {
            number::order_key_into(cell.bytes, &mut digits);
            cell.bytes.iter().any(|b| matches!(b, b'.' | b'e' | b'E'))
        }
        kind::FLOAT64 | kind::FLOAT32 => {
            number::order_key_of_f64(f64::from_bits(eight(cell.bytes) as u64), &mut digits);
            true
        }
        _ => {
            number::order_key_of_i64(eight(cell.bytes), &mut digits);
            false
        }
    };
    delimited(if how.typed_numbers && float { FLOATING } else { NUMBER }, &digits, into);
}

/// The 8 bytes of an integer, time or float cell.
pub fn eight(bytes: &[u8]) -> i64 {
    bytes.try_into().map(i64::from_le_bytes).unwrap_or_default()
}

fn document(node: Node<'_>, except: &[&[Step]], how: &Comparison, into: &mut Vec<u8>) {
    match node.kind() {
        kind::ARRAY => {
            into.push(ARRAY);
            let at = into.len();
            into.extend_from_slice(&[0; 4]);
            let mut count = 0u32;
            for (i, child) in node.children().enumerate() {
                let (gone, below) = narrow(except, |step| matches!(step, Step::Element(n) if *n as usize == i));
                if !gone {
                    document(child, &below, how, into);
                    count += 1;
                }
            }
            into[at..at + 4].copy_from_slice(&count.to_le_bytes());
        }
        kind::MAP | kind::STRUCT => {
            // Member order does not matter, a null member equals a missing one (K8).
            let mut members: Vec<(&str, Node<'_>)> = node
                .children()
                .filter(|child| how.missing_distinct || child.kind() > kind::NULL)
                .map(|child| (child.name(), child))
                .collect();
            members.sort_unstable_by(|a, b| a.0.cmp(b.0));
            into.push(OBJECT);
            let at = into.len();
            into.extend_from_slice(&[0; 4]);
            let mut count = 0u32;
            for (name, child) in members {
                let (gone, below) = narrow(except, |step| matches!(step, Step::Member(n) if n == name));
                if !gone {
                    delimited(TEXT, name.as_bytes(), into);
                    document(child, &below, how, into);
                    count += 1;
                }
            }
            into[at..at + 4].copy_from_slice(&count.to_le_bytes());
        }
        scalar => canonical(Cell { kind: scalar, bytes: node.scalar().unwrap_or_default() }, how, into),
    }
}

/// The excluded paths that lead below a child, and whether the child itself is excluded.
fn narrow<'a>(except: &[&'a [Step]], is: impl Fn(&Step) -> bool) -> (bool, Vec<&'a [Step]>) {
    let mut below = Vec::new();
    let mut gone = false;
    for path in except {
        match path.split_first() {
            Some((step, [])) if is(step) => gone = true,
            Some((step, rest)) if is(step) => below.push(rest),
            _ => {}
        }
    }
    (gone, below)
}

/// A header's bytes read as the type that the part names (K11); `Err` says why they cannot be.
pub fn read_header<'a>(bytes: &'a [u8], read_as: ReadAs, room: &'a mut Vec<u8>) -> Result<Cell<'a>, &'static str> {
    let text = || std::str::from_utf8(bytes).map_err(|_| "the header is not UTF-8");
    match read_as {
        ReadAs::Bytes => Ok(Cell { kind: kind::BYTES, bytes }),
        ReadAs::Text => text().map(|text| Cell { kind: kind::TEXT, bytes: text.as_bytes() }),
        ReadAs::Int => {
            let value: i64 = text()?.trim().parse().map_err(|_| "the header is not an integer")?;
            room.clear();
            room.extend_from_slice(&value.to_le_bytes());
            Ok(Cell { kind: kind::INT64, bytes: room })
        }
        ReadAs::Decimal => {
            let text = text()?.trim();
            if !number::is_number(text.as_bytes()) {
                return Err("the header is not a decimal number");
            }
            Ok(Cell { kind: kind::NUMBER, bytes: text.as_bytes() })
        }
        ReadAs::Boolean => match text()?.trim() {
            "true" | "1" => Ok(Cell { kind: kind::BOOLEAN, bytes: &[1] }),
            "false" | "0" => Ok(Cell { kind: kind::BOOLEAN, bytes: &[0] }),
            _ => Err("the header is not a boolean"),
        },
    }
}

/// The canonical form of a key's definition: what R8 compares. Parts stand in the order of their expression text, so
/// that reordering them changes nothing.
pub fn identity(key: &Key) -> String {
    use crate::config::pipeline::KeyForm;
    let mut text = match &key.form {
        KeyForm::Fields(parts) => {
            let mut parts: Vec<String> = parts
                .iter()
                .map(|part| match part.read_as {
                    ReadAs::Bytes => part.path.to_string(),
                    other => format!("{} as {other:?}", part.path),
                })
                .collect();
            parts.sort();
            parts.dedup();
            format!("[{}]", parts.join(", "))
        }
        KeyForm::Whole { root, except } => {
            let mut except: Vec<String> = except.iter().map(Path::to_string).collect();
            except.sort();
            format!("whole {root} except [{}]", except.join(", "))
        }
        KeyForm::Guest(uses) => format!("{} {}", uses.name, uses.with),
    };
    if key.missing_distinct {
        text.push_str(" missing distinct");
    }
    if key.typed_numbers {
        text.push_str(" typed numbers");
    }
    if let Some(form) = key.normalize {
        text.push_str(&format!(" {form:?}").to_lowercase());
    }
    if key.casefold {
        text.push_str(" casefold");
    }
    text
}

/// A cell as it is written into an upsert key (O6): equal keys are written alike, so that compaction sees one key. Text
/// stands as compared, numbers in their shortest digits, members sorted, null members left out, missing as null.
pub fn written(cell: Cell<'_>, how: &Comparison, into: &mut Builder) {
    written_without(cell, &[], how, into);
}

/// The same of a document without some of its paths (K10).
pub fn written_without(cell: Cell<'_>, except: &[Vec<Step>], how: &Comparison, into: &mut Builder) {
    match cell.kind {
        kind::MISSING | kind::NULL => into.null(),
        kind::TEXT => into.text(&folded(&String::from_utf8_lossy(cell.bytes), how)),
        kind::NUMBER if !how.typed_numbers => match plain_number(cell.bytes) {
            Some(plain) => into.bytes(kind::NUMBER, plain.as_bytes()),
            None => into.cell(kind::NUMBER, cell.bytes),
        },
        kind::ARRAY.. => match Doc::unchecked(cell.bytes) {
            Ok(doc) => {
                let except: Vec<&[Step]> = except.iter().map(Vec::as_slice).collect();
                written_node(doc.root(), &except, how, into);
            }
            Err(_) => into.null(),
        },
        other => into.cell(other, cell.bytes),
    }
}

fn written_node(node: Node<'_>, except: &[&[Step]], how: &Comparison, into: &mut Builder) {
    if !node.is_container() {
        return written(Cell { kind: node.kind(), bytes: node.scalar().unwrap_or_default() }, how, into);
    }
    into.open(node.kind());
    if node.kind() == kind::ARRAY {
        for (i, child) in node.children().enumerate() {
            let (gone, below) = narrow(except, |step| matches!(step, Step::Element(n) if *n as usize == i));
            if !gone {
                written_node(child, &below, how, into);
            }
        }
    } else {
        let mut members: Vec<Node<'_>> = node.children().filter(|child| child.kind() > kind::NULL).collect();
        members.sort_unstable_by_key(|member| member.name());
        for member in members {
            let name = member.name();
            let (gone, below) = narrow(except, |step| matches!(step, Step::Member(n) if n == name));
            if !gone {
                into.name(member.name_bytes());
                written_node(member, &below, how, into);
            }
        }
    }
    into.close();
}

/// A number in the shortest digits of its exact value: `1.50` and `15e-1` are `1.5`. `None` where that would be longer
/// than 40 digits; such a number stays as it came.
fn plain_number(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = (whole.len() as i64).checked_add(exponent)?;
    let leading = digits.bytes().take_while(|b| *b == b'0').count();
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let point = point - leading as i64;
    let length = significant.len() as i64;
    if point.abs() > 40 || length > 40 {
        return None;
    }
    Some(if point <= 0 {
        format!("{sign}0.{}{significant}", "0".repeat(point.unsigned_abs() as usize))
    } else if point >= length {
        format!("{sign}{significant}{}", "0".repeat((point - length) as usize))
    } else {
        let (before, after) = significant.split_at(point as usize);
        format!("{sign}{before}.{after}")
    })
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
