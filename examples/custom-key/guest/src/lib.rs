//! A key made of two fields: the host of `value.url` in lower case, a zero byte, `value.user`. A record without a URL
//! has no key, one without a user the empty one; one whose fields are no texts fails.

use tamis_guest::{Failure, Key, KeyCell, Row, Value};

struct UrlUser;
tamis_guest::key!(UrlUser, include_str!("../manifest.json"));

impl Key for UrlUser {
    fn open(_params: &Value) -> Result<(UrlUser, Vec<String>), String> {
        Ok((UrlUser, vec!["value.url".into(), "value.user".into()]))
    }
    fn key(&mut self, row: &Row<'_>, key: &mut KeyCell<'_>) -> Result<(), Failure> {
        let not_text = || Failure::permanent("not-text", "url and user must be texts");
        if row.cell(0).is_none() {
            return Ok(());
        }
        let url = row.text(0).ok_or_else(not_text)?;
        let user = if row.cell(1).is_none() { "" } else { row.text(1).ok_or_else(not_text)? };
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let host = rest.split(['/', '?', '#', ':']).next().unwrap_or_default();
        key.write_text(&[&host.to_lowercase(), "\0", user]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tamis_guest::{Cell, Column, kind, kit};

    use super::*;

    #[test]
    fn the_key_is_host_and_user_and_a_record_without_url_has_none() {
        let (mut urls, mut users) = (Column::default(), Column::default());
        let rows = [
            (Cell::text("HTTPS://Shop.Example/a?b"), Cell::text("ann")),
            (Cell::text("shop.example:443"), Cell::text("ann")),
            (Cell::MISSING, Cell::text("bob")),
            (Cell::text("x"), Cell::bytes(b"1")),
        ];
        for (url, user) in rows {
            urls.push(url);
            users.push(user);
        }
        let (keys, failures) = kit::keys::<UrlUser>(&Value::Null, &[urls, users]).unwrap();
        assert_eq!(keys.cell(0), Cell::text("shop.example\0ann"));
        assert_eq!(keys.cell(1), keys.cell(0));
        assert_eq!(keys.cell(2).kind, kind::MISSING);
        assert_eq!((failures.len(), failures[0].row), (1, 3));
    }
}
