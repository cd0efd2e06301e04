//! The `halo` binary: hands the command line to [`halo_server::cli`].

fn main() -> std::process::ExitCode {
    halo_server::cli::main()
}
