//! The transform `mask`: hides fields. Text becomes another text, anything else null; what is missing stays missing.

use serde_json::Value;
use tamis_guest::{Cell, Check, Failure, Kind, Out, Row, Transform, Verdict};

struct Mask {
    fields: usize,
    text: String,
}

tamis_guest::transform!(Mask, include_str!("../manifest.json"));

fn fields(params: &Value) -> Vec<&str> {
    params["fields"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

impl Transform for Mask {
    fn check(params: &Value, _context: &Value) -> Check {
        let fields = fields(params);
        let mut check = Check::of(&fields, &fields);
        check.traits.row_preserving = true;
        for (i, field) in fields.iter().enumerate() {
            let is_value =
                field.strip_prefix("value").is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
            if !is_value {
                let at = format!("/with/fields/{i}");
                check
                    .error("P-VALUE", &at, format!("mask changes fields of the value; `{field}` is none"))
                    .help(format!("write value.{field} if that is meant"));
            }
        }
        check
    }

    fn open(params: &Value, _context: &Value) -> Result<Mask, String> {
        Ok(Mask { fields: fields(params).len(), text: params["text"].as_str().unwrap_or("***").to_string() })
    }

    fn row(&mut self, row: &Row<'_>, out: &mut Out) -> Result<Verdict, Failure> {
        let mut verdict = Verdict::Keep;
        for field in 0..self.fields {
            let cell = row.cell(field);
            if cell.is_none() || cell.as_text() == Some(&self.text) {
                continue;
            }
            if verdict == Verdict::Keep {
                out.emit_row(row, Kind::Insert, None);
                verdict = Verdict::Output;
            }
            out.write(field, if cell.as_text().is_some() { Cell::text(&self.text) } else { Cell::NULL });
        }
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use tamis_guest::{Column, kind, kit};

    use super::*;

    #[test]
    fn text_becomes_the_text_and_the_rest_null_and_missing_stays() {
        let params = json!({"fields": ["value.name", "value.age"], "text": "-"});
        let (mut names, mut ages) = (Column::default(), Column::default());
        names.push(Cell::text("Ada"));
        ages.push_i64(kind::INT64, 36);
        names.push(Cell::MISSING);
        ages.push(Cell::NULL);
        names.push(Cell::MISSING);
        ages.push_bool(true);
        let outcome = kit::transform::<Mask>(&params, &json!({}), &[names, ages]).unwrap();
        assert_eq!(outcome.verdicts, [2, 0, 2]);
        assert_eq!(outcome.output.origins, [0, 2]);
        let written = |column: usize| outcome.output.columns[column].cells().collect::<Vec<_>>();
        assert_eq!(written(0), [Cell::text("-"), Cell::UNCHANGED]);
        assert_eq!(written(1), [Cell::NULL, Cell::NULL]);
    }

    #[test]
    fn a_field_outside_the_value_is_refused_with_its_place() {
        let check = Mask::check(&json!({"fields": ["value.a", "name", "values.b"]}), &json!({}));
        let at: Vec<_> = check.findings.iter().map(|finding| finding.at.as_str()).collect();
        assert_eq!(at, ["/with/fields/1", "/with/fields/2"]);
        assert!(check.is_refused());
    }
}
