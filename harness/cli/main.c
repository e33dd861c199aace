/* The program: finds the verb, hands it its options, turns its answer into an exit code. */
#include "harness/cli/args.h"
#include "harness/cli/help.h"
#include "harness/cli/verb.h"
#include "harness/core/version.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int report(const struct err *e, int code) {
    const char *debug = getenv("ASSAY_DEBUG");
    /* a negative verdict is a result, already told: it has a text only when there is more to say */
    if (code != ASSAY_ENEGATIVE || *e->text)
        fprintf(stderr, "assay: %s: %s\n", code == ASSAY_ENEGATIVE ? "warn" : "error",
                *e->text ? e->text : "failed without a message");
    if (debug && !strcmp(debug, "1") && e->file)
        fprintf(stderr, "assay: debug: found at %s:%d\n", e->file, e->line);
    return err_exit_code(code);
}

static int unknown_verb(const char *name) {
    const char *names[64];
    size_t n = 0;
    for (const struct verb *const *v = verb_all; *v && n < sizeof names / sizeof *names; v++)
        names[n++] = (*v)->name;
    char near[256];
    args_near(name, names, n, near, sizeof near);
    struct err e = {0};
    return report(&e, err_set(&e, ASSAY_EUSAGE, "unknown verb '%s'%s", name,
                              *near ? near : "; 'assay help' lists them"));
}

/* What was printed must have arrived: a result cut short by a full disk is not a success. A reader
 * that went away (EPIPE) has what it wanted. */
static int finish_output(int status) {
    errno = 0;
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (!failed || errno == EPIPE)
        return status;
    fprintf(stderr, "assay: error: cannot write to standard output: %s\n",
            errno ? strerror(errno) : "write error");
    return status ? status : err_exit_code(ASSAY_EENV);
}

static int run_verb(const struct verb *v, int argc, const char *const *argv) {
    struct err e = {0};
    struct common *options = calloc(1, v->options_size);
    if (!options)
        return report(&e, err_set(&e, ASSAY_ENOMEM, "out of memory"));
    int code = args_parse(v, argc, argv, options, &e);
    if (!code && options->help)
        help_verb(v, stdout);
    else if (!code)
        code = v->run(options, &e);
    int status = finish_output(code ? report(&e, code) : 0);
    arena_release(&options->arena);
    free(options);
    return status;
}

int main(int argc, char **argv) {
    /* a closed pipe or a file at its size limit is an error to report, not a reason to die between a
     * measurement and its record */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    const char *first = argc > 1 ? argv[1] : NULL;
    if (!first) {
        help_overview(stderr);
        return err_exit_code(ASSAY_EUSAGE);
    }
    if (!strcmp(first, "--version") || !strcmp(first, "-V")) {
        printf("assay %s (%s)\n", assay_version, assay_git_commit);
        return finish_output(0);
    }
    if (!strcmp(first, "--help") || !strcmp(first, "-h"))
        first = "help";
    const struct verb *v = verb_find(first);
    if (!v)
        return unknown_verb(first);
    return run_verb(v, argc - 2, (const char *const *)(void *)(argv + 2));
}
