//! The program: parse the arguments, call the verb, exit with its code.

use std::process::ExitCode;

fn main() -> ExitCode {
    // What is not Unicode in the environment is nothing a pipeline file can name.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    ExitCode::from(tamis::cli::main(std::env::args_os(), environment))
}
