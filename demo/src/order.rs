//! The orders: what they are, and how they are read from a file.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder, Trim};
use serde::{Deserialize, Serialize};

/// The columns that a file must have, in any order.
const COLUMNS: [&str; 4] = ["id", "customer", "product", "quantity"];
/// The longest text in a field, in bytes.
const LONGEST: usize = 200;
/// The most pieces of one order.
const MOST: u32 = 1_000_000;

/// One line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: String,
    pub customer: String,
    pub product: String,
    pub quantity: u32,
}

/// Returns how many pieces of each product there are at the beginning: half of what is ordered, so that most
/// products sell out.
pub fn stock(orders: &[Order]) -> BTreeMap<String, i64> {
    let mut stock = BTreeMap::new();
    for order in orders {
        *stock.entry(order.product.clone()).or_default() += i64::from(order.quantity);
    }
    stock.values_mut().for_each(|pieces| *pieces = (*pieces + 1) / 2);
    stock
}

/// Reads a file of orders. Errors name the line and the field.
pub fn read(file: &Path) -> Result<Vec<Order>, String> {
    let bytes = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    parse(&bytes).map_err(|why| format!("{}, {why}", file.display()))
}

fn parse(bytes: &[u8]) -> Result<Vec<Order>, String> {
    // Flexible, so that the error for a line that is too short names the missing field.
    let mut reader = ReaderBuilder::new().flexible(true).trim(Trim::All).from_reader(bytes);
    let header = reader.byte_headers().map_err(|e| e.to_string())?.clone();
    let mut at = [0; COLUMNS.len()];
    for (place, column) in at.iter_mut().zip(COLUMNS) {
        *place = header.iter().position(|it| it == column.as_bytes()).ok_or_else(|| {
            let (line, wanted) = (line(bytes, &header), COLUMNS.join(", "));
            format!("line {line}: there is no column {column:?} (it needs {wanted})")
        })?;
    }
    let mut orders: Vec<Order> = Vec::new();
    let mut ids = HashMap::new();
    for record in reader.byte_records() {
        let record = record.map_err(|e| e.to_string())?;
        let in_line = |(field, why)| format!("line {}, field {field:?}: {why}", line(bytes, &record));
        if record.len() > header.len() {
            let (has, wanted) = (record.len(), header.len());
            return Err(format!("line {}: {has} fields, and not {wanted}", line(bytes, &record)));
        }
        let order = order(&record, &at).map_err(in_line)?;
        if let Some(before) = ids.insert(order.id.clone(), record.clone()) {
            let before = line(bytes, &before);
            return Err(in_line((
                COLUMNS[0],
                format!("{:?} is the order of line {before} already", order.id),
            )));
        }
        orders.push(order);
    }
    if orders.is_empty() { Err("there is no order in it".into()) } else { Ok(orders) }
}

/// Parses one order, or returns which field is wrong, and why.
fn order(record: &ByteRecord, at: &[usize; 4]) -> Result<Order, (&'static str, String)> {
    let field = |i: usize| {
        let bytes = record.get(at[i]).ok_or_else(|| "it is missing".to_owned());
        let text = bytes.and_then(|it| str::from_utf8(it).map_err(|_| "it is not UTF-8".to_owned()));
        let text = text.and_then(|text| match text {
            "" => Err("it is empty".to_owned()),
            _ if text.len() > LONGEST => Err(format!("it has {} bytes, and may have {LONGEST}", text.len())),
            _ if text.contains(char::is_control) => Err(format!("{text:?} has a control character in it")),
            _ => Ok(text.to_owned()),
        });
        text.map_err(|why| (COLUMNS[i], why))
    };
    let [id, customer, product, quantity] = [field(0)?, field(1)?, field(2)?, field(3)?];
    match quantity.parse() {
        Ok(quantity @ 1..=MOST) => Ok(Order { id, customer, product, quantity }),
        _ => Err((COLUMNS[3], format!("{quantity:?} is not a whole number from 1 to {MOST}"))),
    }
}

/// Returns the line in which a record begins. The reader's own count leaves out empty lines before it.
fn line(bytes: &[u8], record: &ByteRecord) -> usize {
    let at = record.position().map_or(0, |it| it.byte() as usize);
    let empty = bytes[at..].iter().take_while(|it| b"\r\n".contains(it)).count();
    1 + bytes[..at + empty].iter().filter(|it| **it == b'\n').count()
}
