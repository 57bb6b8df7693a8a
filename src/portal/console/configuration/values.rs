//! Values of fields: taken out of an entry to be shown, and put into one as they were typed.

use toml::{Table, Value as Toml};

use super::fields::{Field, Input};

impl Field {
    /// Takes the field's value out of an entry as it is shown; `None` if it is absent or does not fit the field.
    pub(super) fn take(&self, entry: &mut Table) -> Option<String> {
        let shown = match (at(entry, self.key)?, &self.input) {
            (Toml::Integer(number), Input::Number | Input::Price) => number.to_string(),
            (Toml::String(text), Input::Names) if !text.contains(',') => text.clone(),
            (Toml::Array(items), Input::Names) => {
                let names = items
                    .iter()
                    .map(|item| item.as_str().filter(|name| !name.contains(',')));
                names.collect::<Option<Vec<_>>>()?.join(", ")
            }
            (Toml::String(text), Input::Text) if !text.contains('\n') => text.clone(),
            (
                Toml::String(text),
                Input::Number | Input::Price | Input::LongText | Input::Choice(_),
            ) => text.clone(),
            _ => return None,
        };
        remove(entry, self.key);
        Some(shown)
    }

    /// Puts what was typed into an entry, unless it is empty. The checks of the configuration say what is wrong with it.
    pub(super) fn put(&self, typed: &str, entry: &mut Table) -> Result<(), String> {
        let typed = typed.trim();
        if typed.is_empty() {
            return Ok(());
        }
        if at(entry, self.key).is_some() {
            return Err(format!(
                "`{}` has the field “{}”: write it only there.",
                self.key, self.label
            ));
        }
        let value = match &self.input {
            Input::Number => {
                let number: Result<i64, _> = typed.replace([',', '_', ' '], "").parse();
                number.map_or_else(|_| Toml::from(typed), Toml::from)
            }
            Input::Price => Toml::from(typed.trim_start_matches('$').replace(',', "")),
            Input::Names if typed.contains(',') => {
                let names = typed.split(',').map(|name| Toml::from(name.trim()));
                Toml::Array(names.collect())
            }
            // Browsers send line breaks as CR LF.
            Input::LongText => Toml::from(typed.replace("\r\n", "\n")),
            _ => Toml::from(typed),
        };
        insert(entry, self.key, value)
    }
}

fn at<'a>(entry: &'a Table, key: &str) -> Option<&'a Toml> {
    match key.split_once('.') {
        Some((table, key)) => entry.get(table)?.as_table()?.get(key),
        None => entry.get(key),
    }
}

fn remove(entry: &mut Table, key: &str) {
    let Some((table, key)) = key.split_once('.') else {
        entry.remove(key);
        return;
    };
    if let Some(Toml::Table(inner)) = entry.get_mut(table) {
        inner.remove(key);
        if inner.is_empty() {
            entry.remove(table);
        }
    }
}

fn insert(entry: &mut Table, key: &str, value: Toml) -> Result<(), String> {
    let Some((table, key)) = key.split_once('.') else {
        entry.insert(key.to_owned(), value);
        return Ok(());
    };
    let inner = entry
        .entry(table)
        .or_insert_with(|| Toml::Table(Table::new()));
    match inner {
        Toml::Table(inner) => {
            inner.insert(key.to_owned(), value);
            Ok(())
        }
        _ => Err(format!(
            "`{table}` is a table: write e.g. `{table}.{key} = …`."
        )),
    }
}
