//! Changes of messages.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{Index, select};

use super::fields::{Field, Value, count, encode, nth, parse};

/// One change of a message.
#[derive(Clone, Debug)]
pub enum Mutation {
    /// Of the field at a place.
    Field(Index, Change),
    /// Of the byte at a place.
    Byte(Index, ByteChange),
}

/// A change of a field.
#[derive(Clone, Debug)]
pub enum Change {
    /// Another number, or as many bytes for a field that has none.
    Number(u64),
    /// A number that is a little larger, or smaller.
    Nudge(i8),
    /// Other bytes.
    Bytes(Vec<u8>),
    /// Not there.
    Remove,
    /// So many times more.
    Repeat(usize),
    /// The value of another field.
    Take(Index),
    /// Before another field.
    Move(Index),
    /// With the number of another field of the message that it is in.
    Renumber(u32),
    /// In itself, so many levels deep.
    Nest(usize),
}

/// A change of a byte.
#[derive(Clone, Debug)]
pub enum ByteChange {
    Set(u8),
    Flip(u8),
    Insert(u8),
    Remove,
    /// The message ends before it.
    End,
}

/// Numbers at which something ends: of bytes, of integers, of lengths.
const NUMBERS: [u64; 22] = [
    0,
    1,
    2,
    3,
    10,
    54,
    55,
    127,
    128,
    255,
    256,
    32767,
    65536,
    0x7FFF_FFFE,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x1_0000_0000,
    1 << 60,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0000,
    u64::MAX,
];

const TEXTS: [&[u8]; 22] = [
    b"",
    b"0",
    b"1",
    b"+1",
    b"-1",
    b"01",
    b"65536",
    b"4294967295",
    b"4294967296",
    b"99999999999999999999",
    b"x",
    b"t",
    b"sin",
    b"power",
    b"grad",
    b"named_struct",
    b"Plus",
    b"Modulo",
    b"AND",
    b"\xFF\xFE",
    b"\0",
    b"Etc/Nowhere",
];

fn change() -> impl Strategy<Value = Change> {
    let bytes = prop_oneof![
        select(TEXTS.as_slice()).prop_map(<[u8]>::to_vec),
        vec(any::<u8>(), 0..40),
        (any::<u8>(), 0..5000_usize).prop_map(|(byte, count)| vec![byte; count]),
    ];
    prop_oneof![
        3 => select(NUMBERS.as_slice()).prop_map(Change::Number),
        1 => any::<u64>().prop_map(Change::Number),
        3 => (-3_i8..=3).prop_map(Change::Nudge),
        3 => bytes.prop_map(Change::Bytes),
        2 => Just(Change::Remove),
        2 => prop_oneof![4 => 1..4_usize, 1 => Just(1000)].prop_map(Change::Repeat),
        4 => any::<Index>().prop_map(Change::Take),
        2 => any::<Index>().prop_map(Change::Move),
        3 => (1..50_u32).prop_map(Change::Renumber),
        1 => prop_oneof![1..4_usize, 40..60_usize, Just(500)].prop_map(Change::Nest),
    ]
}

fn byte_change() -> impl Strategy<Value = ByteChange> {
    prop_oneof![
        any::<u8>().prop_map(ByteChange::Set),
        (0..8_u8).prop_map(|bit| ByteChange::Flip(1 << bit)),
        any::<u8>().prop_map(ByteChange::Insert),
        Just(ByteChange::Remove),
        Just(ByteChange::End),
    ]
}

/// From one change to four, one more often than not: the more there are, the less is read of a message.
pub fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let mutation = || {
        prop_oneof![
            4 => (any::<Index>(), change()).prop_map(|(at, change)| Mutation::Field(at, change)),
            1 => (any::<Index>(), byte_change()).prop_map(|(at, change)| Mutation::Byte(at, change)),
        ]
    };
    prop_oneof![2 => vec(mutation(), 1), 1 => vec(mutation(), 2..5)]
}

/// The message with these changes, one after another.
pub fn mutated(message: &[u8], mutations: &[Mutation]) -> Vec<u8> {
    mutations.iter().fold(message.to_vec(), |message, mutation| match mutation {
        Mutation::Field(at, change) => match parse(&message) {
            Some(fields) if !fields.is_empty() => encode(&changed(fields, *at, change)),
            _ => message,
        },
        Mutation::Byte(at, change) => with_byte(message, *at, change),
    })
}

fn changed(mut fields: Vec<Field>, at: Index, change: &Change) -> Vec<Field> {
    let other = |fields: &mut Vec<Field>, at: Index| {
        let number = at.index(count(fields));
        nth(fields, number).map(|(within, place)| within[place].clone())
    };
    let taken = match change {
        Change::Take(from) => other(&mut fields, *from),
        _ => None,
    };
    let number = at.index(count(&fields));
    let Some((within, place)) = nth(&mut fields, number) else { return fields };
    match change {
        Change::Number(number) => {
            within[place].value = match &within[place].value {
                Value::Eight(_) => Value::Eight(*number),
                Value::Four(_) => Value::Four(*number as u32),
                _ => Value::Number(*number),
            }
        }
        Change::Nudge(by) => match &mut within[place].value {
            Value::Number(number) | Value::Eight(number) => *number = number.wrapping_add_signed(i64::from(*by)),
            Value::Four(number) => *number = number.wrapping_add_signed(i32::from(*by)),
            Value::Bytes(bytes) => bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add_signed(*by)),
            Value::Message(_) => {
                within[place].number = within[place].number.saturating_add_signed(i32::from(*by)).max(1)
            }
        },
        Change::Bytes(bytes) => within[place].value = Value::Bytes(bytes.clone()),
        Change::Remove => drop(within.remove(place)),
        Change::Repeat(times) => {
            let field = within[place].clone();
            // Of a large one fewer: each of its parts takes its time.
            let size = encode(std::slice::from_ref(&field)).len();
            let times = (*times).min(1 + 2000 / size);
            within.splice(place..place, std::iter::repeat_n(field, times));
        }
        Change::Take(_) => {
            if let Some(taken) = taken {
                within[place].value = taken.value;
            }
        }
        Change::Move(to) => {
            let field = within.remove(place);
            let number = to.index(1 + count(&fields));
            match nth(&mut fields, number) {
                Some((within, place)) => within.insert(place, field),
                None => fields.push(field),
            }
        }
        Change::Renumber(number) => within[place].number = *number,
        Change::Nest(levels) => {
            let field = &mut within[place];
            for _ in 0..*levels {
                let inner = std::mem::replace(&mut field.value, Value::Number(0));
                field.value = Value::Message(vec![Field { number: field.number, value: inner }]);
            }
        }
    }
    fields
}

fn with_byte(mut message: Vec<u8>, at: Index, change: &ByteChange) -> Vec<u8> {
    if message.is_empty() {
        return message;
    }
    let at = at.index(message.len());
    match change {
        ByteChange::Set(byte) => message[at] = *byte,
        ByteChange::Flip(bits) => message[at] ^= bits,
        ByteChange::Insert(byte) => message.insert(at, *byte),
        ByteChange::Remove => drop(message.remove(at)),
        ByteChange::End => message.truncate(at),
    }
    message
}
