//! What stands in the attribute: `name = "guild"` and `json`.

use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, LitStr, Result, Token};

/// Longest name of an entity type; as in `atoll::base::limits`.
const NAME_BYTES_MAX: usize = 64;

#[derive(Default)]
pub struct Options {
    pub name: Option<LitStr>,
    pub json: bool,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Options> {
        let mut options = Options::default();
        while !input.is_empty() {
            let option: Ident = input.parse()?;
            match option.to_string().as_str() {
                "json" => options.json = true,
                "name" => {
                    input.parse::<Token![=]>()?;
                    let name: LitStr = input.parse()?;
                    check_name(&name)?;
                    options.name = Some(name);
                }
                other => {
                    let message = format!("unknown option `{other}`; there are `name = \"…\"` and `json`");
                    return Err(Error::new(option.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

fn check_name(name: &LitStr) -> Result<()> {
    let text = name.value();
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(known) {
        let message =
            format!("the name of an entity type has 1 to {NAME_BYTES_MAX} characters of a-z, 0-9, `_` and `-`");
        return Err(Error::new(name.span(), message));
    }
    Ok(())
}
