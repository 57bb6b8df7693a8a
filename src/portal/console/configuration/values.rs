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
            Input::Number => whole_number(typed),
            Input::Price => price(typed).ok_or_else(|| {
                format!(
                    "“{}” is {typed}. Write decimals after a point, e.g. 0.15, and no comma.",
                    self.label
                )
            })?,
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

/// A price as it was typed; `None` if it has a comma, which may separate decimals or thousands.
fn price(typed: &str) -> Option<Toml> {
    let amount = typed.trim_start_matches('$').trim_start();
    (!amount.contains(',')).then(|| Toml::from(amount))
}

/// A whole number, whose thousands may be separated. Anything else stays the text that it is, and is refused as such.
fn whole_number(typed: &str) -> Toml {
    let mut groups = typed.split([',', '_', ' ']);
    let first = groups.next().unwrap_or_default();
    let is_grouped = groups.all(|group| group.len() == 3) && (1..=3).contains(&first.len());
    let digits = if is_grouped {
        typed.replace([',', '_', ' '], "")
    } else {
        typed.to_owned()
    };
    let number: Result<i64, _> = digits.parse();
    number.map_or_else(|_| Toml::from(typed), Toml::from)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn put(input: Input, typed: &str) -> Result<Toml, String> {
        let field = Field {
            key: "input",
            label: "Input price",
            hint: "",
            input,
        };
        let mut entry = Table::new();
        field.put(typed, &mut entry)?;
        Ok(entry.remove("input").unwrap())
    }

    #[test]
    fn a_price_with_a_comma_is_a_mistake() {
        for typed in ["0,15", "1,5", "1,000.00", "1.000,00", "$0,15", ","] {
            let mistake = put(Input::Price, typed).unwrap_err();
            assert!(
                mistake.starts_with("“Input price” is ")
                    && mistake.contains("after a point, e.g. 0.15"),
                "{mistake}"
            );
        }
        for (typed, read) in [(" 0.15 ", "0.15"), ("$ 2.00", "2.00"), ("3", "3")] {
            assert_eq!(put(Input::Price, typed), Ok(Toml::from(read)));
        }
    }

    #[test]
    fn only_thousands_of_a_whole_number_are_separated() {
        for (typed, number) in [
            ("128000", 128_000),
            ("128,000", 128_000),
            ("1 050 000", 1_050_000),
            ("1_050_000", 1_050_000),
            ("-5", -5),
        ] {
            assert_eq!(put(Input::Number, typed), Ok(Toml::from(number)), "{typed}");
        }
        for typed in [
            "1,5",
            "0,5",
            "1,0000",
            "128000,000",
            ",500",
            "1.5",
            ",",
            "many",
        ] {
            assert_eq!(put(Input::Number, typed), Ok(Toml::from(typed)), "{typed}");
        }
    }
}
