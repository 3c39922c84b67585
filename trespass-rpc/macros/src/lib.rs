//! Defines the attribute `service`; `trespass-rpc` documents it.

mod generate;
mod method;

use proc_macro::TokenStream;

/// Generates a client and a server from a trait: see `trespass_rpc::service`.
#[proc_macro_attribute]
pub fn service(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut options = generate::Options::default();
    let parser = syn::meta::parser(|meta| options.parse(&meta));
    syn::parse_macro_input!(arguments with parser);
    let item = syn::parse_macro_input!(item as syn::ItemTrait);
    generate::service(&options, item).unwrap_or_else(|error| error.to_compile_error()).into()
}
