//! `umbo quota usage`: usage since the start of a server, or of the last days through all servers.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use umbo_api::quota::{UsageHistory, UsageHistoryRow};
use umbo_api::time_to_live;
use umbo_client::UsageQuery;
use umbo_quota::{GROUPS_MAX, KEPT_SECONDS};
use umbo_types::Namespace;

use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::{self, Format, Listing, note};

/// The column of the price.
const COST: &str = "cost";

/// Arguments of `umbo quota usage`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace; with --last, all of them if it is left out
    #[arg(required_unless_present = "last")]
    ns: Option<Namespace>,
    /// Show the usage of this time through all servers, stopped ones too, up to 35d (like 7d)
    #[arg(long, value_name = "DURATION", value_parser = last)]
    last: Option<Duration>,
    #[command(flatten)]
    history: HistoryArguments,
}

/// Arguments that go with `--last`.
#[derive(Debug, Args)]
struct HistoryArguments {
    /// Groups to show, separated by commas
    #[arg(long, value_name = "GROUP", value_delimiter = ',', default_value = "caller", requires = "last",
          value_parser = ["caller", "namespace", "operation", "day", "month"])]
    by: Vec<String>,
    /// Show the usage of this caller only
    #[arg(long, value_name = "NAME", requires = "last")]
    caller: Option<String>,
    /// Most groups to show, the newest days or months first, 1 to 65536; CSV has all
    #[arg(long, value_name = "N", default_value_t = 1_000, requires = "last", conflicts_with = "csv",
          value_parser = clap::value_parser!(u64).range(1..=GROUPS_MAX as u64))]
    limit: u64,
    /// Price of a million request units: adds a column COST to the table and to CSV
    #[arg(long, value_name = "AMOUNT", requires = "last", conflicts_with = "output", value_parser = price)]
    price: Option<f64>,
    /// Print CSV (RFC 4180)
    #[arg(long, requires = "last", conflicts_with = "output")]
    csv: bool,
}

fn last(text: &str) -> Result<Duration, String> {
    let last = time_to_live::span(text)?;
    if !(1..=KEPT_SECONDS).contains(&last.as_secs()) {
        return Err("usage is kept for 35 days; expected 1s to 35d".to_owned());
    }
    Ok(last)
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse::<f64>().map_err(|error| error.to_string())?;
    if !price.is_finite() || price < 0.0 {
        return Err("expected a number of 0 or more".to_owned());
    }
    Ok(price)
}

impl Arguments {
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let ns = self.ns.as_ref().map(Namespace::as_str);
        let Some(last) = self.last else {
            return since_start(connection, ns.unwrap_or_default()).await;
        };
        let HistoryArguments {
            by,
            caller,
            limit,
            csv,
            ..
        } = &self.history;
        let by: Vec<_> = by.iter().map(String::as_str).collect();
        let query = UsageQuery {
            last_seconds: last.as_secs(),
            by: &by,
            namespace: ns,
            caller: caller.as_deref(),
            limit: if *csv { GROUPS_MAX as u64 } else { *limit },
        };
        let found = connection.client()?.usage_history(&query).await?;
        self.history.show(connection.listing_format(), &found)?;
        let (shown, total) = (found.rows.len() as u64, found.total);
        if shown < total {
            note!("{shown} of {total}; --limit shows more");
        }
        Ok(())
    }
}

async fn since_start(connection: &ConnectionArgs, ns: &str) -> Result<(), CliError> {
    let usage = connection.client()?.usage(ns).await?;
    output::write_report(connection.listing_format(), &usage, || {
        Listing::new(
            "CALLER  OPERATION  REQUESTS  REJECTED  RU  PENALTY  ROWS  READ-BYTES  WRITE-BYTES",
        )
        .write(Format::Table, &usage.rows)?;
        output::write_bytes(b"\n")?;
        Listing::new("SHARD  REQUESTS  RU").write(Format::Table, &usage.shards)?;
        let ru = output::amount(usage.ru);
        note!("{ru} RU in all, through the server that answered");
        Ok(())
    })
}

impl HistoryArguments {
    fn show(&self, format: Format, found: &UsageHistory) -> Result<(), CliError> {
        let columns = self.columns();
        if self.csv {
            output::write_bytes(self.as_csv(&columns, &found.rows).as_bytes())?;
        } else if format == Format::Json {
            return output::write_json(found);
        } else {
            let header = columns.join("  ").to_uppercase().replace('_', "-");
            let cells = |row: &UsageHistoryRow| self.cells(&columns, row, output::amount);
            output::write_list(format, &found.rows, &header, cells)?;
        }
        if found.unreadable_rows > 0 {
            let rows = found.unreadable_rows;
            note!("usage is missing: {rows} rows could not be read, or not whole");
        }
        if let Some(first) = found.first_ms.filter(|first| *first > found.from_ms) {
            let first = output::instant(Some(first));
            note!("the first usage that is kept is of {first}");
        }
        let cost = self.cost(found.ru).map(output::amount);
        let cost = cost.map_or_else(String::new, |cost| format!(" for {cost}"));
        let ru = output::amount(found.ru);
        let [from, until] = [found.from_ms, found.until_ms].map(|ms| output::instant(Some(ms)));
        note!(
            "{ru} RU in all{cost} from {from} until {until}, through all servers; of other servers, the last minute may be missing"
        );
        Ok(())
    }

    /// Returns the names of the columns, as fields of a row: the groups that were asked for, and all amounts.
    fn columns(&self) -> Vec<&'static str> {
        let has = |name: &str| self.by.iter().any(|by| by == name);
        let mut columns = Vec::new();
        if has("day") || has("month") {
            columns.extend(["period", "partial"]);
        }
        let groups = ["caller", "namespace", "operation"].into_iter();
        columns.extend(groups.filter(|name| has(name)));
        columns.extend([
            "requests",
            "rejected",
            "ru",
            "penalty",
            "rows",
            "read_bytes",
        ]);
        columns.extend(["write_bytes", "ru_second_max", "ru_ten_seconds_max"]);
        columns.extend(self.price.map(|_| COST));
        columns
    }

    fn cells(
        &self,
        columns: &[&str],
        row: &UsageHistoryRow,
        amount: fn(f64) -> String,
    ) -> Vec<String> {
        // A row that cannot be JSON has no fields.
        let fields = serde_json::to_value(row).unwrap_or_default();
        let cell = |column: &&str| match &fields[*column] {
            _ if *column == COST => amount(self.cost(row.ru).unwrap_or_default()),
            Value::String(text) => text.clone(),
            Value::Number(number) => match number.as_u64() {
                Some(whole) => whole.to_string(),
                None => amount(number.as_f64().unwrap_or_default()),
            },
            Value::Bool(is_so) => is_so.to_string(),
            _ => String::new(),
        };
        columns.iter().map(cell).collect()
    }

    /// Returns the price of request units, if they have one.
    fn cost(&self, ru: f64) -> Option<f64> {
        self.price.map(|price| ru / 1e6 * price)
    }

    fn as_csv(&self, columns: &[&str], rows: &[UsageHistoryRow]) -> String {
        // Micro-units, like request units have.
        let exact = |amount: f64| ((amount * 1e6).round() / 1e6).to_string();
        let rows = rows.iter().map(|row| {
            let cells = self.cells(columns, row, exact);
            cells
                .iter()
                .map(|cell| quoted(cell))
                .collect::<Vec<_>>()
                .join(",")
        });
        let lines = std::iter::once(columns.join(",")).chain(rows);
        lines.map(|line| line + "\r\n").collect()
    }
}

/// Returns a field of CSV, in quotes if it needs them.
fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_the_groups_that_were_asked_for_and_what_they_cost() {
        let arguments = HistoryArguments {
            by: vec!["caller".to_owned(), "month".to_owned()],
            caller: None,
            limit: 1,
            price: Some(0.25),
            csv: true,
        };
        let row = UsageHistoryRow {
            period: Some("2026-11".to_owned()),
            partial: true,
            caller: Some("a \"b\", c".to_owned()),
            requests: 7,
            ru: 3_000_000.25,
            ..UsageHistoryRow::default()
        };
        let without = UsageHistoryRow::default();
        let cells = arguments.cells(&["period", "cost"], &without, |amount| amount.to_string());
        assert_eq!(cells, ["", "0"], "only the column of the cost is a cost");
        assert_eq!(
            arguments.as_csv(&arguments.columns(), &[row]),
            "period,partial,caller,requests,rejected,ru,penalty,rows,read_bytes,write_bytes,ru_second_max,\
             ru_ten_seconds_max,cost\r\n\
             2026-11,true,\"a \"\"b\"\", c\",7,0,3000000.25,0,0,0,0,0,0,0.75\r\n"
        );
    }
}
