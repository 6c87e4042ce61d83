//! The table: a file for each agent, with how it is driven and its test.

mod aider;
mod claude;
mod cline;
mod cn;
mod codex;
mod copilot;
mod gemini;
mod opencode;
mod pi;
mod qwen;
