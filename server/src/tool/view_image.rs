//! `view_image`: an image file for a model that takes images. What is in the file is judged by its bytes, decoded,
//! and made smaller where models want less ([`fit`]). The file itself is never changed.

mod fit;
#[cfg(test)]
mod tests;

use super::args::Args;
use super::{Context, Image, Output, Tool, blocking};
use crate::mime;
use crate::model::ToolSpec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fit::Fitted;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use md5::{Digest, Md5};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::io::Read;
use tokio::sync::Semaphore;

/// The biggest file that is read, in bytes.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// Images that are decoded at the same time, in all sessions: each may take some hundred MiB.
static AT_ONCE: Semaphore = Semaphore::const_new(2);

/// The tool.
pub struct ViewImage;

impl Tool for ViewImage {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "view_image".into(),
            description:
                "Shows you an image file: png, jpg, jpeg, gif or webp. A large one is made smaller on the \
                          way, and the answer says so; the file stays as it is."
                    .into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Relative to the workspace, absolute, or ~/ for the home folder"},
                },
                "required": ["path"],
            }),
        }
    }

    fn needs_sight(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        async move {
            let Some(permit) = context.cancel.run_until_cancelled(AT_ONCE.acquire()).await else {
                return Output::error("stopped");
            };
            blocking::run(context, move |context| {
                // Until the work is done, also when nobody waits for it any more.
                let _permit = permit;
                view(&Args::new("view_image", &input), context).unwrap_or_else(Output::error)
            })
            .await
        }
        .boxed()
    }
}

fn view(args: &Args<'_>, context: &Context) -> Result<Output, String> {
    let path = args.filled_text("path")?;
    let guard = context.guard();
    let path = guard.resolve(path).map_err(|error| error.to_string())?;
    let opened = guard.open_file(&path).map_err(|error| error.to_string())?;
    let shown = guard.shown(&path);
    let mut bytes = Vec::new();
    if opened.metadata.len() <= MAX_FILE {
        opened
            .file
            .take(MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("{shown}: {error}"))?;
    }
    if bytes.len() as u64 > MAX_FILE || opened.metadata.len() > MAX_FILE {
        return Err(format!(
            "{shown} is over {} MiB, too big for view_image; make a smaller copy with a command and view that",
            MAX_FILE >> 20
        ));
    }
    let Some(mime_type) = mime::image_of(&bytes) else {
        return Err(format!(
            "{shown} is no png, jpeg, gif or webp image ({} bytes; the bytes count, not the name); convert it to one \
             of these with a command, or read it with file_read if it is text",
            bytes.len()
        ));
    };
    let fitted = fit::fit(&bytes, mime_type, &context.cancel).map_err(|error| format!("{shown} {error}"))?;
    let mut text = format!(
        "Image loaded: {shown} ({mime_type}, {} KB, md5: {})",
        kilobytes(bytes.len()),
        hex(&Md5::digest(&bytes))
    );
    let image = match fitted {
        Fitted::AsItIs => Image { mime_type, data: STANDARD.encode(&bytes) },
        Fitted::Smaller { jpeg, width, height, first_frame } => {
            let what = if first_frame { "its first frame " } else { "" };
            let _ = write!(
                text,
                "; {what}shown as a JPEG of {width}x{height} pixels, {} KB",
                kilobytes(jpeg.len())
            );
            Image { mime_type: "image/jpeg", data: STANDARD.encode(&jpeg) }
        }
    };
    Ok(Output { image: Some(image), ..Output::ok(text) })
}

/// Rounded up.
fn kilobytes(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
