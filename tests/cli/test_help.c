/* The built program's help in all its forms, and what it says to wrong use. The list of verbs and
 * options is taken from the table that the program is linked from, so that nothing can be added to it
 * without being in the help, the manual page and the completion. */
#include "harness/cli/args.h"
#include "harness/cli/verb.h"
#include "harness/cli/verbs.h"
#include "tests/cli/child.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(cli_help, .fini = child_home_remove);

Test(cli_help, overview_lists_every_verb) {
    const struct child *c = assay("help");
    cr_assert(eq(int, c->status, 0));
    cr_assert(eq(str, (char *)c->err, ""));
    for (const struct verb *const *v = verb_all; *v; v++) {
        char line[64];
        snprintf(line, sizeof line, "\n  %s ", (*v)->name);
        CHECK(strstr(c->out, line), "'%s' is not in the overview", (*v)->name);
    }
}

Test(cli_help, each_verb_shows_its_options_and_the_same_by_help) {
    for (const struct verb *const *v = verb_all; *v; v++) {
        char args[64];
        snprintf(args, sizeof args, "%s --help", (*v)->name);
        const struct child *c = assay(args);
        cr_assert(eq(int, c->status, 0), "%s", args);
        const struct option *o;
        for (size_t i = 0; (o = args_row_at(*v, i)); i++) {
            char word[80];
            snprintf(word, sizeof word, "--%s", o->name);
            CHECK(strstr(c->out, word), "%s: '%s' is not there", args, word);
        }
        char *direct = strdup(c->out);
        snprintf(args, sizeof args, "help %s", (*v)->name);
        c = assay(args);
        cr_assert(eq(str, (char *)c->out, direct));
        free(direct);
    }
}

Test(cli_help, rows_are_whole) {
    for (const struct verb *const *v = verb_all; *v; v++) {
        CHECK((*v)->summary && (*v)->about && (*v)->run && (*v)->usage);
        CHECK(strlen((*v)->summary) <= 88, "%s: the summary is long", (*v)->name);
        CHECK((*v)->options_size >= sizeof(struct common));
        const struct option *o, *other;
        for (size_t i = 0; (o = args_row_at(*v, i)); i++) {
            CHECK(o->help && *o->help, "%s --%s has no help", (*v)->name, o->name);
            for (size_t j = 0; j < i && (other = args_row_at(*v, j)); j++)
                CHECK(strcmp(o->name, other->name), "%s --%s is there twice", (*v)->name, o->name);
            if (o->flags & CLI_OVERRIDE)
                CHECK(args_override_path(o->name), "--%s overrides nothing", o->name);
        }
    }
}

/* Text into the standard input of a shell command; its status and what it printed. */
static int pipe_into(const char *command, const char *text, char *out, size_t n) {
    char path[] = "/tmp/assay-text-XXXXXX", line[512];
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    snprintf(line, sizeof line, "%s < %s 2>&1", command, path);
    FILE *p = popen(line, "r");
    CHECK(p);
    size_t got = fread(out, 1, n - 1, p);
    out[got] = '\0';
    int status = pclose(p);
    unlink(path);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(cli_help, completion_is_bash_and_names_all) {
    const struct child *c = assay("help --completion bash");
    cr_assert(eq(int, c->status, 0));
    for (const struct verb *const *v = verb_all; *v; v++) {
        char line[64];
        snprintf(line, sizeof line, "\n        %s) words='", (*v)->name);
        const char *from = strstr(c->out, line);
        CHECK(from, "%s has no case", (*v)->name);
        const char *to = strchr(from + strlen(line), '\'');
        const struct option *o;
        for (size_t i = 0; (o = args_row_at(*v, i)); i++) {
            char word[80];
            snprintf(word, sizeof word, "--%s", o->name);
            const char *at = strstr(from, word);
            CHECK(at && at < to, "%s: %s is not completed", (*v)->name, word);
        }
    }
    if (access("/bin/bash", X_OK))
        cr_skip_test("there is no bash");
    static char said[8192];
    cr_assert(eq(int, pipe_into("bash -n", c->out, said, sizeof said), 0), "%s", said);
    cr_assert(eq(str, (char *)said, ""));
    /* and it completes: `assay ins<TAB>` */
    static char script[CHILD_TEXT_MAX + 1024];
    snprintf(script, sizeof script,
             "%s\nCOMP_WORDS=(assay ins); COMP_CWORD=1; _assay; echo \"${COMPREPLY[*]}\"\n"
             "COMP_WORDS=(assay help --comp); COMP_CWORD=2; _assay; echo \"${COMPREPLY[*]}\"\n"
             "COMP_WORDS=(assay help --completion b); COMP_CWORD=3; _assay; echo \"${COMPREPLY[*]}\"\n"
             "COMP_WORDS=(assay query chips); COMP_CWORD=2; _assay; echo \"${COMPREPLY[*]}\"\n"
             "COMP_WORDS=(assay key tr); COMP_CWORD=2; _assay; echo \"${COMPREPLY[*]}\"\n",
             c->out);
    cr_assert(eq(int, pipe_into("bash -s", script, said, sizeof said), 0));
    cr_assert(eq(str, (char *)said, "inspect\n--completion\nbash\nchips-for-rate\ntrust\n"));
}

/* What help says to type works, where it needs no endpoint, file or earlier run. */
Test(cli_help, examples_work, .timeout = 120) {
    static const struct verb *const verbs[] = {&verb_run, &verb_sweep, &verb_inspect};
    int ran = 0;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        for (const char *s = verbs[i]->examples; *s; s += strcspn(s, "\n") + 1) {
            char line[256];
            snprintf(line, sizeof line, "%.*s", (int)strcspn(s, "\n"), s);
            if (strstr(line, "http"))
                continue;
            const struct child *c = assay(line + sizeof "assay " - 1);
            cr_assert(eq(int, c->status, 0), "%s: %s", line, c->err);
            ran++;
        }
    cr_assert(ge(int, ran, 8));
}

Test(cli_help, man_page_is_troff_and_names_all) {
    const struct child *c = assay("help --man");
    cr_assert(eq(int, c->status, 0));
    if (access("/usr/bin/man", X_OK) || access("/usr/bin/groff", X_OK))
        cr_skip_test("there is no man");
    static char page[CHILD_TEXT_MAX];
    cr_assert(eq(int, pipe_into("MANWIDTH=1000 MAN_KEEP_FORMATTING= man -l --warnings -", c->out, page,
                                sizeof page), 0));
    CHECK(!strstr(page, "troff:") && !strstr(page, "<standard input>"), "%.400s", page);
    for (const struct verb *const *v = verb_all; *v; v++) {
        char word[80];
        snprintf(word, sizeof word, "assay %s", (*v)->name);
        CHECK(strstr(page, word), "%s", word);
        const struct option *o;
        for (size_t i = 0; (o = args_row_at(*v, i)); i++) {
            snprintf(word, sizeof word, "--%s", o->name);
            CHECK(!strcmp(o->name, "help") || strstr(page, word), "%s %s", (*v)->name, word);
        }
    }
}

Test(cli_help, version_says_what_it_is) {
    const struct child *c = assay("--version");
    cr_assert(eq(int, c->status, 0));
    cr_assert(eq(int, strncmp(c->out, "assay ", 6), 0));
    CHECK(strchr(c->out, '(') && strchr(c->out, ')'));
}

Test(cli_help, wrong_use_is_2_says_why_and_prints_no_result) {
    static const struct {
        const char *args, *says;
    } uses[] = {
        {"", "assay VERB"},
        {"hepl", "assay: error: unknown verb 'hepl'; did you mean 'help'?"},
        {"ins", "did you mean 'inspect'?"},
        {"qqqqqqqq", "unknown verb 'qqqqqqqq'; 'assay help' lists them"},
        {"help nothing-like-it", "help: unknown verb 'nothing-like-it'"},
        {"help a b", "unexpected argument 'b'"},
        {"help --completion", "option '--completion' needs a value: none|bash"},
        {"help --completion zsh", "--completion: expected one of: none, bash, found 'zsh'"},
        {"help --complet bash", "unknown option '--complet'; did you mean '--completion'?"},
        {"help --man=perhaps", "--man: expected true or false, found 'perhaps'"},
        {"help -man", "did you mean '--man'?"},
        {"help -x", "unknown option '-x'"},
        {"help -hx", "unknown option '-hx'"},
        {"inspect", "expected FILE or --list"},
        {"inspect --list x", "--list takes no FILE"},
        {"inspect no-such-definition", "nothing that ships is called so"},
        {"inspect ./no-such-file.json", "no-such-file.json"},
        {"inspect -- --list", "--list"},
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const struct child *c = assay(uses[i].args);
        cr_assert(eq(int, c->status, 2), "assay %s", uses[i].args);
        CHECK(strstr(c->err, uses[i].says), "assay %s: expected '%s', found '%s'", uses[i].args,
                  uses[i].says, c->err);
        cr_assert(eq(str, (char *)c->out, ""), "assay %s", uses[i].args);
    }
}

Test(cli_help, a_result_that_cannot_be_written_is_not_a_success) {
    char line[600];
    const char *build = getenv("ASSAY_BUILD");
    snprintf(line, sizeof line, "%s/assay help > /dev/full 2>/dev/null", build && *build ? build : "build");
    int status = system(line);
    cr_assert(eq(int, WEXITSTATUS(status), 3));
}
