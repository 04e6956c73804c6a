//! Messages as fields of the wire format of protocol buffers, whatever they mean, so that every part of one can be changed.

use prost::bytes::{Buf, BufMut};
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

/// A field of a message.
#[derive(Clone, Debug)]
pub struct Field {
    pub number: u32,
    pub value: Value,
}

/// What stands in a field.
#[derive(Clone, Debug)]
pub enum Value {
    Number(u64),
    Eight(u64),
    Four(u32),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// The fields of a message. What could be a message within it is taken for one.
pub fn parse(bytes: &[u8]) -> Option<Vec<Field>> {
    let mut rest = bytes;
    let mut fields = vec![];
    while rest.has_remaining() {
        let (number, kind) = decode_key(&mut rest).ok()?;
        let value = match kind {
            WireType::Varint => Value::Number(decode_varint(&mut rest).ok()?),
            WireType::SixtyFourBit => Value::Eight(rest.try_get_u64_le().ok()?),
            WireType::ThirtyTwoBit => Value::Four(rest.try_get_u32_le().ok()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
                let (bytes, after) = rest.split_at_checked(length)?;
                rest = after;
                match parse(bytes) {
                    Some(fields) if !fields.is_empty() => Value::Message(fields),
                    _ => Value::Bytes(bytes.to_vec()),
                }
            }
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        fields.push(Field { number, value });
    }
    Some(fields)
}

/// The message of these fields.
pub fn encode(fields: &[Field]) -> Vec<u8> {
    let mut bytes = vec![];
    for Field { number, value } in fields {
        match value {
            Value::Number(value) => {
                encode_key(*number, WireType::Varint, &mut bytes);
                encode_varint(*value, &mut bytes);
            }
            Value::Eight(value) => {
                encode_key(*number, WireType::SixtyFourBit, &mut bytes);
                bytes.put_u64_le(*value);
            }
            Value::Four(value) => {
                encode_key(*number, WireType::ThirtyTwoBit, &mut bytes);
                bytes.put_u32_le(*value);
            }
            Value::Bytes(value) => delimited(*number, value, &mut bytes),
            Value::Message(fields) => delimited(*number, &encode(fields), &mut bytes),
        }
    }
    bytes
}

fn delimited(number: u32, value: &[u8], bytes: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, bytes);
    encode_varint(value.len() as u64, bytes);
    bytes.put_slice(value);
}

/// How many fields there are, those of messages within included.
pub fn count(fields: &[Field]) -> usize {
    let within = |field: &Field| match &field.value {
        Value::Message(fields) => count(fields),
        _ => 0,
    };
    fields.iter().map(|field| 1 + within(field)).sum()
}

/// The field of this number in the order of [`count`]: the message that it is in, and its place there.
pub fn nth(fields: &mut Vec<Field>, mut number: usize) -> Option<(&mut Vec<Field>, usize)> {
    let mut at = None;
    for (place, field) in fields.iter().enumerate() {
        let size = count(std::slice::from_ref(field));
        if number < size {
            at = Some(place);
            break;
        }
        number -= size;
    }
    let place = at?;
    if number == 0 {
        return Some((fields, place));
    }
    match &mut fields[place].value {
        Value::Message(within) => nth(within, number - 1),
        _ => None,
    }
}
