//! Tables that are copied, and the statements for that.

/// A table with the same name in both databases.
pub(crate) struct Table {
    pub name: &'static str,
    /// The columns of the source by which rows are copied in order; together they are unique and not NULL.
    pub key: &'static [&'static str],
    pub columns: &'static [Column],
    /// The column that PostgreSQL numbers by itself; it continues after the highest copied number.
    pub identity: Option<&'static str>,
}

#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// The SQLite expression; by default the column's name.
    source: Option<&'static str>,
    /// The PostgreSQL expression of the value `source.<name>`; by default the value, in the type of its kind.
    target: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Int,
    /// A boolean, which SQLite stores as 0 or 1.
    Flag,
    /// Bytes of a BLOB or a text.
    Bytes,
    /// A JSON text, which becomes `jsonb`.
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Target,
}

pub(super) const PART: i64 = 1 << 20;

impl Column {
    pub(crate) const fn text(name: &'static str) -> Self {
        Self::of(name, Kind::Text)
    }

    pub(crate) const fn int(name: &'static str) -> Self {
        Self::of(name, Kind::Int)
    }

    pub(crate) const fn flag(name: &'static str) -> Self {
        Self::of(name, Kind::Flag)
    }

    pub(crate) const fn bytes(name: &'static str) -> Self {
        Self::of(name, Kind::Bytes)
    }

    pub(crate) const fn json(name: &'static str) -> Self {
        Self::of(name, Kind::Json)
    }

    const fn of(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            source: None,
            target: None,
        }
    }

    pub(crate) const fn read_as(self, source: &'static str) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    #[cfg(test)]
    pub(super) fn is_computed(&self) -> bool {
        self.source.is_some()
    }

    pub(crate) const fn written_as(self, target: &'static str) -> Self {
        Self {
            target: Some(target),
            ..self
        }
    }
}

impl Table {
    /// The SQLite query of the next rows: the columns, then the key. Its parameters are the key of the row before, if
    /// there is one, and the number of rows.
    pub(super) fn select(&self, is_first: bool) -> String {
        let columns = self.columns.iter().map(|column| match column.source {
            Some(source) => source.to_owned(),
            None => quoted(column.name),
        });
        let keys = self.key.join(", ");
        let columns = columns.chain([keys.clone()]).collect::<Vec<_>>().join(", ");
        let table = quoted(self.name);
        if is_first {
            return format!("SELECT {columns} FROM {table} ORDER BY {keys} LIMIT ?1");
        }
        let count = self.key.len();
        let values: Vec<_> = (1..=count).map(|number| format!("?{number}")).collect();
        let values = values.join(", ");
        let limit = count + 1;
        format!(
            "SELECT {columns} FROM {table} WHERE ({keys}) > ({values}) ORDER BY {keys} LIMIT ?{limit}"
        )
    }

    /// The PostgreSQL statement that inserts a batch; its parameters are one array for each column.
    pub(super) fn insert(&self) -> String {
        let list = |of: &dyn Fn(usize, &Column) -> String| {
            let columns = self.columns.iter().enumerate();
            let columns = columns.map(|(at, column)| of(at, column));
            columns.collect::<Vec<_>>().join(", ")
        };
        let names = list(&|_, column| quoted(column.name));
        let arrays = list(&|at, _| format!("${}", at + 1));
        let values = list(&|_, column| match (column.target, column.kind) {
            (Some(target), _) => target.to_owned(),
            (None, Kind::Json) => format!("source.{}::jsonb", quoted(column.name)),
            (None, _) => format!("source.{}", quoted(column.name)),
        });
        format!(
            "INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE
             SELECT {values} FROM unnest({arrays}) AS source ({names})",
            quoted(self.name)
        )
    }

    /// The columns with numbers, whose sums are compared when everything is copied.
    pub(super) fn numbers(&self) -> impl Iterator<Item = &Column> {
        let columns = self.columns.iter();
        columns.filter(|column| column.kind == Kind::Int)
    }

    /// The query of the number of rows and of the sums of [`Self::numbers`], for both databases. A sum may exceed 64 bits,
    /// so it has two parts: of multiples of [`PART`] and of remainders.
    pub(super) fn totals(&self, side: Side) -> String {
        let sums = self.numbers().map(|column| {
            let number = match (side, column.source) {
                (Side::Source, Some(source)) => source.to_owned(),
                _ => quoted(column.name),
            };
            let sum =
                |part: &str| format!(", CAST(coalesce(sum({number} {part} {PART}), 0) AS TEXT)");
            sum("/") + &sum("%")
        });
        let sums: String = sums.collect();
        format!(
            "SELECT CAST(count(*) AS TEXT){sums} FROM {}",
            quoted(self.name)
        )
    }
}

/// A name in quotes, because some are keywords.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}
