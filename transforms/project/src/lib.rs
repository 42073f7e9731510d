//! The transform `project`: the value keeps the fields that are named, in their order, and nothing else. What is missing
//! stays missing. A null value, and one that is no object, passes as it is.

use serde_json::Value;
use tamis_guest::document::Builder;
use tamis_guest::path::{self, Step};
use tamis_guest::{Cell, Check, Failure, Kind, Out, Row, Transform, Verdict, kind};

/// The stage.
pub struct Project {
    members: Vec<Member>,
    document: Builder,
    /// Bytes of the value being written, kept for the next one.
    bytes: Vec<u8>,
}

tamis_guest::transform!(Project, include_str!("../manifest.json"));

/// A member of the value as it leaves.
struct Member {
    name: String,
    content: Content,
}

enum Content {
    /// The cell of this column.
    Column(usize),
    /// An object.
    Members(Vec<Member>),
}

/// One field as it was asked for.
struct Field<'a> {
    /// The path, as written.
    path: &'a str,
    /// Its name, if one was given.
    name: Option<&'a str>,
}

fn fields(params: &Value) -> Vec<Field<'_>> {
    params["fields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| match item {
            Value::String(path) => Some(Field { path, name: None }),
            other => Some(Field { path: other["field"].as_str()?, name: other["name"].as_str() }),
        })
        .collect()
}

impl Field<'_> {
    /// The column it is read from.
    fn column(&self) -> String {
        // `key` and `value` alone are the bytes; with a dot they are the document.
        if matches!(self.path, "key" | "value") { format!("{}.", self.path) } else { self.path.to_string() }
    }

    /// Where it stands in the value afterwards; the error is for a person.
    fn place(&self) -> Result<Vec<Step>, &'static str> {
        if let Some(name) = self.name {
            return Ok(vec![Step::Member(name.to_string())]);
        }
        let end = self.path.find(['.', '[']).unwrap_or(self.path.len());
        let (root, rest) = self.path.split_at(end);
        let steps = path::parse(rest.strip_prefix('.').unwrap_or(rest)).map_err(|_| "that is no path")?;
        let of_value = root == "value";
        match steps.as_slice() {
            [] if of_value => Err("that is all of the value: nothing would be left out"),
            [] => Ok(vec![Step::Member(root.to_string())]),
            steps if of_value && steps.iter().any(|step| matches!(step, Step::Element(_))) => {
                Err("an element of an array needs a name")
            }
            steps if of_value => Ok(steps.to_vec()),
            [.., Step::Member(name)] => Ok(vec![Step::Member(name.clone())]),
            [.., Step::Element(_)] => Err("an element of an array needs a name"),
        }
    }
}

/// The tree of members; the error names the field, by number, that has no place in it.
fn tree(fields: &[Field<'_>]) -> Result<Vec<Member>, (usize, String)> {
    let mut members = Vec::new();
    for (column, field) in fields.iter().enumerate() {
        let place = field.place().map_err(|why| (column, format!("`{}`: {why}", field.path)))?;
        let taken = || (column, format!("`{}` stands where another field stands already", field.path));
        let mut level: &mut Vec<Member> = &mut members;
        for (depth, step) in place.iter().enumerate() {
            let Step::Member(name) = step else { return Err(taken()) };
            let last = depth + 1 == place.len();
            let found = level.iter().position(|member| member.name == *name);
            let at = match found {
                Some(_) if last => return Err(taken()),
                Some(at) => at,
                None => {
                    let content = if last { Content::Column(column) } else { Content::Members(Vec::new()) };
                    level.push(Member { name: name.clone(), content });
                    level.len() - 1
                }
            };
            match &mut level[at].content {
                Content::Members(inner) => level = inner,
                Content::Column(_) if last => break,
                Content::Column(_) => return Err(taken()),
            }
        }
    }
    Ok(members)
}

impl Transform for Project {
    fn check(params: &Value, _context: &Value) -> Check {
        let fields = fields(params);
        let reads: Vec<String> = fields.iter().map(Field::column).collect();
        let mut check = Check { reads, writes: vec!["value.".to_string()], ..Check::default() };
        check.traits.row_preserving = true;
        if let Err((field, text)) = tree(&fields) {
            let found = check.error("P-VALUE", &format!("/with/fields/{field}"), text);
            found.help("leave it out").help("give it a name: { field: PATH, name: NAME }");
        }
        check
    }

    fn open(params: &Value, _context: &Value) -> Result<Project, String> {
        let members = tree(&fields(params)).map_err(|(_, text)| text)?;
        Ok(Project { members, document: Builder::new(), bytes: Vec::new() })
    }

    fn row(&mut self, row: &Row<'_>, out: &mut Out) -> Result<Verdict, Failure> {
        if row.is_tombstone() {
            return Ok(Verdict::Keep);
        }
        self.document.clear();
        self.document.open(kind::MAP);
        write(&self.members, row, &mut self.document)?;
        self.document.close();
        self.bytes.clear();
        let kind = self.document.finish_into(&mut self.bytes);
        out.emit_row(row, Kind::Insert, None);
        out.write(0, Cell { kind, bytes: &self.bytes });
        Ok(Verdict::Output)
    }
}

/// Writes the members that are there.
fn write(members: &[Member], row: &Row<'_>, into: &mut Builder) -> Result<(), Failure> {
    for Member { name, content } in members {
        match content {
            Content::Column(column) => {
                let cell = row.cell(*column);
                if cell.kind == kind::MISSING {
                    continue;
                }
                into.name(name.as_bytes());
                match cell.kind {
                    kind::BYTES => match std::str::from_utf8(cell.bytes) {
                        Ok(text) => into.text(text),
                        Err(_) => return Err(Failure::permanent("not-text", format!("`{name}` is no text"))),
                    },
                    kind::TIMESTAMP => into.eight(kind::INT64, eight(cell)),
                    kind => into.cell(kind, cell.bytes),
                }
            }
            Content::Members(inner) if is_there(inner, row) => {
                into.name(name.as_bytes());
                into.open(kind::MAP);
                write(inner, row, into)?;
                into.close();
            }
            Content::Members(_) => {}
        }
    }
    Ok(())
}

/// Is any of these members there?
fn is_there(members: &[Member], row: &Row<'_>) -> bool {
    members.iter().any(|member| match &member.content {
        Content::Column(column) => row.cell(*column).kind != kind::MISSING,
        Content::Members(inner) => is_there(inner, row),
    })
}

fn eight(cell: Cell<'_>) -> [u8; 8] {
    cell.bytes.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use tamis_guest::document::Doc;
    use tamis_guest::{Column, kit};

    use super::*;

    fn refused(fields: Value) -> Vec<String> {
        let check = Project::check(&json!({ "fields": fields }), &json!({}));
        check.findings.into_iter().map(|finding| format!("{} {}", finding.at, finding.text)).collect()
    }

    /// Names below a node, in order, with what is below them.
    fn names(node: tamis_guest::document::Node<'_>) -> Vec<String> {
        let mut all = Vec::new();
        for child in node.children() {
            let name = child.name().to_string();
            let inner = names(child);
            all.push(if inner.is_empty() { name } else { format!("{name}({})", inner.join(" ")) });
        }
        all
    }

    #[test]
    fn fields_stand_in_the_order_asked_for_and_what_is_missing_stays_missing() {
        let params = json!({"fields": ["value.b", "value.user.mail", { "field": "timestamp", "name": "at" }, "value.user.id", "value.a"]});
        let mut columns = vec![Column::default(); 5];
        for (column, present) in columns.iter_mut().zip([true, false, true, true, false]) {
            if present {
                column.push_i64(kind::TIMESTAMP, 7)
            } else {
                column.push(Cell::MISSING)
            }
            column.push(Cell::MISSING);
        }
        let outcome = kit::transform::<Project>(&params, &json!({}), &columns).unwrap();
        assert_eq!(outcome.verdicts, [2, 2]);
        let of = |row: usize| names(Doc::new(outcome.output.columns[0].cell(row).bytes).unwrap().root());
        assert_eq!(of(0), ["b", "user(id)", "at"].map(String::from).to_vec());
        assert!(of(1).is_empty());
    }

    #[test]
    fn what_is_read_are_documents_and_the_whole_value_is_written() {
        let fields = json!(["value.a", "key", "key.id", "headers.h"]);
        let check = Project::check(&json!({ "fields": fields }), &json!({}));
        assert_eq!(check.reads, ["value.a", "key.", "key.id", "headers.h"]);
        assert_eq!(check.writes, ["value."]);
        assert!(!check.is_refused() && check.traits.row_preserving);
    }

    #[test]
    fn two_fields_in_one_place_are_refused() {
        let taken = "stands where another field stands already";
        assert_eq!(refused(json!(["value.a", "value.a"])), [format!("/with/fields/1 `value.a` {taken}")]);
        assert_eq!(refused(json!(["value.a.b", "value.a"])), [format!("/with/fields/1 `value.a` {taken}")]);
        assert_eq!(refused(json!(["value.a", "value.a.b"])), [format!("/with/fields/1 `value.a.b` {taken}")]);
        assert_eq!(refused(json!(["value.id", { "field": "key.id" }])), [format!("/with/fields/1 `key.id` {taken}")]);
        assert_eq!(refused(json!(["value"])).len(), 1);
        assert_eq!(refused(json!(["value.tags[0]"])).len(), 1);
        assert!(
            refused(json!([{ "field": "value.tags[0]", "name": "tag" }, "value.a", "value.b.c", "value.b.d"]))
                .is_empty()
        );
    }
}
