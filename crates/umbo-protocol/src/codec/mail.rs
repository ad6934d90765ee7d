//! Letters between dispatchers.

use bytes::Bytes;

use crate::error::DecodeError;
use crate::mail::{
    ABOUT_LEN_MAX, LETTERS_MAX, Letter, MailRequest, QUESTION_LEN_MAX, QuestionRequest,
    REPLY_LEN_MAX,
};
use crate::wire::{Reader, bad, put_bytes, put_fixed, put_varint};

/// Fewest bytes of a letter and of an incarnation.
const LETTER_LEN_MIN: usize = 9;
const INCARNATION_LEN: usize = 8;

pub(super) fn put_letters(out: &mut Vec<u8>, letters: &[Letter]) {
    put_varint(out, letters.len() as u64);
    for (number, bytes) in letters {
        put_fixed(out, *number);
        put_bytes(out, bytes);
    }
}

pub(super) fn letters(reader: &mut Reader<'_>) -> Result<Vec<Letter>, DecodeError> {
    let count = reader.count("letters", LETTER_LEN_MIN)?;
    if count > LETTERS_MAX {
        return Err(bad("letters", &count));
    }
    let letter = |_| Ok((reader.fixed()?, bounded(reader, "letter", REPLY_LEN_MAX)?));
    (0..count).map(letter).collect()
}

/// Returns the length of letters, approximately.
pub(super) fn letters_len(letters: &[Letter]) -> usize {
    letters.iter().map(|(_, bytes)| bytes.len() + 16).sum()
}

pub(super) fn put_mail(out: &mut Vec<u8>, request: &MailRequest) {
    put_bytes(out, &request.about);
    put_letters(out, &request.replies);
}

pub(super) fn mail(reader: &mut Reader<'_>) -> Result<MailRequest, DecodeError> {
    Ok(MailRequest {
        about: bounded(reader, "about", ABOUT_LEN_MAX)?,
        replies: letters(reader)?,
    })
}

pub(super) fn put_question(out: &mut Vec<u8>, request: &QuestionRequest) {
    put_bytes(out, &request.question);
    put_varint(out, request.to.len() as u64);
    for incarnation in &request.to {
        put_fixed(out, *incarnation);
    }
}

pub(super) fn question(reader: &mut Reader<'_>) -> Result<QuestionRequest, DecodeError> {
    let question = bounded(reader, "question", QUESTION_LEN_MAX)?;
    let count = reader.count("to", INCARNATION_LEN)?;
    if count > LETTERS_MAX {
        return Err(bad("to", &count));
    }
    let to = (0..count).map(|_| reader.fixed());
    Ok(QuestionRequest {
        to: to.collect::<Result<_, _>>()?,
        question,
    })
}

/// Decodes bytes that may be kept for a while.
fn bounded(
    reader: &mut Reader<'_>,
    what: &'static str,
    len_max: usize,
) -> Result<Bytes, DecodeError> {
    let bytes = reader.owned()?;
    if bytes.len() > len_max {
        return Err(bad(what, &format_args!("{} bytes", bytes.len())));
    }
    Ok(bytes)
}
