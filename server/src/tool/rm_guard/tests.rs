use super::*;
use rstest::rstest;

fn check(command: &str) -> Result<(), String> {
    let guard =
        RmGuard::new(Path::new("/data/code/ws"), Path::new("/data/people/u"), Path::new("/data/halo"));
    guard.check(command)
}

#[rstest]
// The places themselves, and what holds them.
#[case("rm -rf /", "/")]
#[case("rm -rf -- /", "/")]
#[case("rm -rf //", "/")]
#[case("rmdir /", "/")]
#[case("rm -rf ~", "/data/people/u")]
#[case("rm -rf ~/", "/data/people/u")]
#[case("rm -rf $HOME", "/data/people/u")]
#[case("rm -rf \"${HOME}\"", "/data/people/u")]
#[case("rm -rf ~/.halo", "/data/people/u/.halo")]
#[case("rm -rf /data/halo", "/data/halo")]
#[case("rm -rf .", "/data/code/ws")]
#[case("rm -rf ..", "/data/code")]
#[case("rm -rf $PWD", "/data/code/ws")]
#[case("rm -rf $(pwd)", "/data/code/ws")]
#[case("rm -rf `pwd`", "/data/code/ws")]
#[case("rm -rf /data/code/ws/../ws/", "/data/code/ws")]
#[case("rm -rf /data", "/data")]
// Stars count as the folder.
#[case("rm -rf *", "/data/code/ws")]
#[case("rm -rf ./*", "/data/code/ws")]
#[case("rm -rf .*", "/data/code/ws")]
#[case("rm -rf **", "/data/code/ws")]
#[case("rm -rf /*", "/")]
#[case("rm -rf ~/*", "/data/people/u")]
// Other variables count as empty.
#[case("rm -rf $UNSET/", "/")]
#[case("rm -rf \"$UNSET\"/*", "/")]
#[case("rm -rf ${UNSET:-x}/", "/")]
#[case("rm -rf $1/", "/")]
#[case("rm -rf $(cat x)/", "/")]
// The system.
#[case("rm -rf /etc", "/etc")]
#[case("rm /etc/passwd", "/etc/passwd")]
#[case("rm -rf /usr/local", "/usr/local")]
#[case("rm -rf /home/someone", "/home/someone")]
#[case("rm -rf /tmp", "/tmp")]
#[case("rm -rf /tmp/*", "/tmp")]
#[case("rm -rf /root", "/root")]
// Where in the line it stands.
#[case("echo a; rm -rf /", "/")]
#[case("echo a && rm -rf /", "/")]
#[case("true || rm -rf /", "/")]
#[case("echo a | xargs rm -rf /", "/")]
#[case("find . | xargs -n 1 rm -rf /", "/")]
#[case("echo a\nrm -rf /", "/")]
#[case("sleep 1 & rm -rf /", "/")]
#[case("sudo rm -rf /", "/")]
#[case("sudo -u root rm -rf /", "/")]
#[case("env A=b rm -rf /", "/")]
#[case("A=b C=\"d e\" rm -rf /", "/")]
#[case("nohup time rm -rf /", "/")]
#[case("timeout -k 1 5 rm -rf /", "/")]
#[case("if true; then rm -rf /; fi", "/")]
#[case("for f in a; do rm -rf /; done", "/")]
#[case("! rm -rf /", "/")]
#[case("{ rm -rf /; }", "/")]
#[case("(rm -rf /)", "/")]
#[case("echo $(rm -rf /)", "/")]
#[case("echo \"$(rm -rf /)\" b", "/")]
#[case("/bin/rm -rf /", "/")]
#[case("\\rm -rf /", "/")]
#[case("r\"m\" -rf '/'", "/")]
#[case("rm \\\n -rf /", "/")]
#[case("rm -rf / >/dev/null 2>&1", "/")]
#[case(">/dev/null rm -rf /", "/")]
#[case("rm -rf a b /", "/")]
#[case("cat <<E\nrm -rf /\nE\nrm -rf /", "/")]
// Behind a cd.
#[case("cd / && rm -rf *", "/")]
#[case("cd .. && rm -rf ws", "/data/code/ws")]
#[case("cd sub; cd ..; rm -rf .", "/data/code/ws")]
#[case("cd && rm -rf *", "/data/people/u")]
#[case("cd $UNSET && rm -rf *", "/data/people/u")]
#[case("cd / && rm -rf $PWD", "/")]
#[case("(cd sub); rm -rf *", "/data/code/ws")]
fn what_must_stay_is_refused(#[case] command: &str, #[case] resolved: &str) {
    let error = check(command).unwrap_err();
    assert!(error.starts_with("[Sandbox] rm blocked: \""), "{error}");
    assert!(error.contains(&format!("\" resolves to {resolved};")), "{error}");
}

#[rstest]
#[case("rm -rf build")]
#[case("rm -rf ./build/*")]
#[case("rm -rf /data/code/ws/build")]
#[case("rm -rf ~/old")]
#[case("rm -rf ~/.halo/global/skills/x")]
#[case("rm -rf /tmp/x")]
#[case("rm -rf /usr/local/x")]
#[case("rm -f *.o")]
#[case("rm -rf \"$UNSET\"")]
#[case("rm -rf '$HOME'")]
#[case("rm -rf /data/other")]
#[case("rm --help")]
#[case("rm")]
#[case("")]
#[case("echo rm -rf /")]
#[case("echo \"; rm -rf /\"")]
#[case("echo '\nrm -rf /'")]
#[case("git commit -m 'rm -rf /'")]
#[case("# rm -rf /")]
#[case("ls # ; rm -rf /")]
#[case("cat <<EOF\nrm -rf /\nEOF\n")]
#[case("cat <<-'EOF'\n\trm -rf /\n\tEOF\nls")]
#[case("cat <<< 'rm -rf /'")]
#[case("cd sub && rm -rf *")]
#[case("(cd / && ls); rm -rf build")]
#[case("rm -rf build > /etc")]
#[case("rm -rf build 2>/dev/null")]
#[case("rm -rf build &>/dev/null")]
#[case("ls / | grep rm")]
#[case("npm run rm /")]
#[case("docker run --rm -v /:/host x")]
fn anything_else_runs(#[case] command: &str) {
    assert_eq!(check(command), Ok(()));
}

#[test]
fn the_word_is_named_as_it_was_written() {
    assert_eq!(
        check("rm -rf \"$HOME\"/").unwrap_err(),
        "[Sandbox] rm blocked: \"\"$HOME\"/\" resolves to /data/people/u; name the files below it that are meant"
    );
}

#[test]
fn a_link_may_go_but_not_what_is_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("ws")).unwrap();
    std::fs::create_dir_all(root.join("home")).unwrap();
    std::os::unix::fs::symlink(root.join("home"), root.join("ws/link")).unwrap();
    let guard = RmGuard::new(&root.join("ws"), &root.join("home"), &root.join("halo"));
    assert_eq!(guard.check("rm link"), Ok(()));
    assert!(guard.check("rm -rf link/").is_err());
    assert!(guard.check("rm -rf link/*").is_err());
    assert!(guard.check("rm -rf link/../ws/../home").is_err());
}

#[rstest]
#[case("\"")]
#[case("'")]
#[case("$(")]
#[case("`")]
#[case("${")]
#[case("\\")]
#[case("cat <<")]
#[case("cat <<E\nx")]
#[case("$(((((")]
#[case("a <(")]
#[case(")))")]
fn broken_lines_are_the_shells_to_refuse(#[case] command: &str) {
    assert_eq!(check(command), Ok(()));
}

proptest::proptest! {
    #[test]
    fn no_line_hangs_or_panics(command in "[rm /~*$(){}<>;&|'\"`\\\\\n#a-]{0,60}") {
        let _ = check(&command);
    }
}
