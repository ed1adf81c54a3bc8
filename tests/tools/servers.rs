//! The table of `docs/operations.md` of servers is what `make matrix SAVE=1` prints.

const PAGE: &str = include_str!("../../docs/operations.md");
const MATRIX: &str = include_str!("../../ci/matrix.sh");
const SERVERS: &str = include_str!("../../ci/servers.sh");

/// The words of each line between these two that begins with a letter.
fn first_words<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    let (_, rest) = text.split_once(begin).unwrap();
    let (lines, _) = rest.split_once(end).unwrap();
    let named = lines.lines().filter(|line| line.starts_with(char::is_alphanumeric));
    named.filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn every_server_of_the_page_has_passed_every_test_of_its_groups() {
    let (_, rest) = PAGE.split_once("<!-- servers: made by `make matrix SAVE=1` -->").unwrap();
    let (table, _) = rest.split_once("<!-- end -->").unwrap();
    let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let mut rows = table.lines().filter(|line| line.starts_with('|')).map(cells);
    let (head, _) = (rows.next().unwrap(), rows.next());
    let [_, groups @ .., "run"] = &head[..] else { panic!("{head:?}") };
    let known = first_words(MATRIX, "groups=\"", "\n\"\n");
    assert!(
        !groups.is_empty() && groups.iter().all(|group| known.contains(&&*group.replace("&shy;", ""))),
        "{groups:?} of {known:?}"
    );
    let obtained = first_words(SERVERS, "servers=\"", "\n\"\n");
    let mut count = 0;
    for row in rows {
        let [server, passed @ .., _] = &row[..] else { panic!("{row:?}") };
        assert_eq!(passed.len(), groups.len(), "{row:?}");
        for cell in passed {
            let (passed, all) = cell.split_once('/').unwrap();
            assert!(passed == all && all != "0", "{row:?}");
        }
        // `Redis 6.2.14` is `redis-6.2`.
        let name = server.to_lowercase().replace(' ', "-");
        let of = |it: &&str| name == **it || name.strip_prefix(*it).is_some_and(|rest| rest.starts_with('.'));
        assert!(obtained.iter().any(of), "{server} is not of ci/servers.sh");
        count += 1;
    }
    assert!(count > 0, "no server is in the table");
}
