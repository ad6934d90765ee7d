//! Questions of dispatchers to one another, through the nodes.
//!
//! A node is a post office: it knows which dispatchers are connected, passes a question of one to others, and collects
//! their replies. It interprets neither. A [`crate::NodeFrame::Mail`] tells a dispatcher that questions wait for it.
//! The dispatcher takes them with its next [`MailRequest`].

use bytes::Bytes;

/// Longest question, in bytes.
pub const QUESTION_LEN_MAX: usize = 16 << 10;
/// Longest reply, in bytes.
pub const REPLY_LEN_MAX: usize = 4 << 20;
/// Longest description of a dispatcher, in bytes.
pub const ABOUT_LEN_MAX: usize = 4 << 10;
/// Most letters of one message.
pub const LETTERS_MAX: usize = 1_024;

/// A number and its content: the incarnation of a dispatcher with its description or its reply, or the number of a
/// question with the question.
pub type Letter = (u64, Bytes);

/// A dispatcher at the post office: introduces itself, leaves its replies, and takes the next questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailRequest {
    /// Its description for other dispatchers.
    pub about: Bytes,
    /// Replies by the numbers of their questions.
    pub replies: Vec<Letter>,
}

/// A question to other dispatchers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionRequest {
    /// Incarnations of the dispatchers that are asked.
    pub to: Vec<u64>,
    /// The question.
    pub question: Bytes,
}
