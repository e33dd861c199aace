/* Help for people: the overview, one verb in full, and the verb `help` itself. */
#include "harness/cli/help.h"

#include "backends/backend.h"
#include "harness/cli/args.h"
#include "harness/cli/term.h"
#include "harness/core/version.h"

#include <string.h>

const char help_tagline[] = "measure, predict and certify the performance of ML accelerators";

const struct help_row help_exits[] = {
    {"0", "done and valid"},
    {"1",
     "done, the verdict is negative: an invalid run, a failed check or verification, a regression"},
    {"2", "wrong use or bad input"},
    {"3", "the environment failed: endpoint unreachable, store locked or full, key missing"},
    {"4", "interrupted; what was measured is stored, marked partial"},
    {0},
};

const struct help_row help_environment[] = {
    {"ASSAY_DB", "the store, where --db is not given"},
    {"ASSAY_DEBUG", "1: errors name the line of the source that found them"},
    {"XDG_DATA_HOME", "where store and keys live; default ~/.local/share"},
    {"NO_COLOR", "set: no bold headings on a terminal"},
    {0},
};

const struct help_row help_files[] = {
    {"$XDG_DATA_HOME/assay/assay.db", "the store"},
    {"$XDG_DATA_HOME/assay/keys/runner.pem",
     "the key that signs this machine's runs; made on first use"},
    {"$XDG_DATA_HOME/assay/keys/trusted/*.pem",
     "public keys whose signatures count, see 'assay key'"},
    {0},
};

void help_remarks(const struct option *row, char *out, size_t n) {
    struct buf b;
    buf_init(&b, 1024);
    const char *sep = " (";
    if (row->flags & OPTION_REQUIRED) {
        buf_printf(&b, "%srequired", sep);
        sep = "; ";
    }
    if (row->flags & CLI_LIST) {
        buf_printf(&b, "%smay be repeated", sep);
        sep = "; ";
    }
    if (row->def && row->type != OPT_BOOL) {
        buf_printf(&b, "%sdefault %s", sep, row->def);
        sep = "; ";
    }
    if (b.n)
        buf_putc(&b, ')');
    snprintf(out, n, "%s", b.n && !b.failed ? b.p : "");
    buf_release(&b);
}

static void heading(FILE *out, const char *text) {
    fprintf(out, "\n%s%s%s\n", term_bold(out), text, term_plain(out));
}

static void rows(FILE *out, const struct help_row *r, int column) {
    for (; r->name; r++) {
        int at = 2 + (int)strlen(r->name);
        fprintf(out, "  %s", r->name);
        if (at + 2 > column) {
            fprintf(out, "\n%*s", column, "");
        } else {
            fprintf(out, "%*s", column - at, "");
        }
        term_wrap(out, r->text, column, column, term_width(out));
    }
}

void help_overview(FILE *out) {
    fprintf(out, "assay %s: %s\n\n", assay_version, help_tagline);
    fprintf(out, "  assay VERB [ARGUMENTS] [OPTIONS]\n");
    heading(out, "verbs");
    for (const struct verb *const *v = verb_all; *v; v++) {
        fprintf(out, "  %-10s", (*v)->name);
        term_wrap(out, (*v)->summary, 12, 12, term_width(out));
    }
    heading(out, "exit codes");
    rows(out, help_exits, 12);
    heading(out, "to begin with");
    fprintf(out, "  assay VERB --help           a verb's arguments, options and examples\n"
                 "  assay inspect --list        workloads, models, chips and rule packs that ship\n"
                 "  assay help --man | man -l - the manual page\n"
                 "  assay --version\n");
}

static void option_row(FILE *out, const struct option *o) {
    enum { COLUMN = 30 };
    char words[256], remarks[256], text[1024];
    char letter = args_letter(o->name);
    const char *word = args_value_word(o, words, sizeof words);
    int at =
        letter ? fprintf(out, "  -%c, --%s", letter, o->name) : fprintf(out, "      --%s", o->name);
    if (word)
        at += fprintf(out, " %s", word);
    if (at + 2 > COLUMN)
        fprintf(out, "\n%*s", COLUMN, "");
    else
        fprintf(out, "%*s", COLUMN - at, "");
    help_remarks(o, remarks, sizeof remarks);
    snprintf(text, sizeof text, "%s%s", o->help ? o->help : "", remarks);
    term_wrap(out, text, COLUMN, COLUMN, term_width(out));
}

static void backend_rows(FILE *out, const struct option *table) {
    int width = 0;
    for (const struct option *o = table; o && o->type != OPT_END; o++)
        if (!(o->flags & OPTION_HIDDEN) && (int)strlen(o->name) > width)
            width = (int)strlen(o->name);
    for (const struct option *o = table; o && o->type != OPT_END; o++) {
        char remarks[512], text[1024];
        if (o->flags & OPTION_HIDDEN)
            continue;
        options_remarks(o, remarks, sizeof remarks);
        snprintf(text, sizeof text, "%s%s", o->help ? o->help : "", remarks);
        fprintf(out, "  %-*s  ", width, o->name);
        term_wrap(out, text, width + 4, width + 4, term_width(out));
    }
}

void help_verb(const struct verb *v, FILE *out) {
    fprintf(out, "assay %s%s%s [OPTIONS]\n\n  ", v->name, *v->usage ? " " : "", v->usage);
    term_wrap(out, v->about, 2, 2, term_width(out));
    heading(out, "options");
    const struct option *o;
    for (size_t i = 0; (o = args_row_at(v, i)); i++)
        if (!(o->flags & OPTION_HIDDEN))
            option_row(out, o);
    if (v->backends)
        for (const struct backend_ops *const *b = backend_all; *b; b++) {
            char title[256];
            snprintf(title, sizeof title, "--backend %s: %s", (*b)->name, (*b)->summary);
            heading(out, title);
            backend_rows(out, (*b)->options);
        }
    if (v->examples) {
        heading(out, "examples");
        const char *s = v->examples;
        while (*s) {
            size_t n = strcspn(s, "\n");
            fprintf(out, "  %.*s\n", (int)n, s);
            s += n + (s[n] == '\n');
        }
    }
}

struct help_args {
    struct common c;
    bool man;
    int completion;
};

enum { COMPLETION_NONE, COMPLETION_BASH };
static const char *const completions[] = {"none", "bash", NULL};

// clang-format off
static const struct option help_options[] = {
    {.name = "completion", .type = OPT_ENUM, .offset = offsetof(struct help_args, completion),
     .choices = completions, .help = "print a completion script for this shell"},
    {.name = "man", .type = OPT_BOOL, .offset = offsetof(struct help_args, man),
     .help = "print the manual page as troff"},
    {0},
};
// clang-format on

static int run_help(void *options, struct err *e) {
    struct help_args *a = options;
    if (a->man) {
        help_man(stdout);
    } else if (a->completion == COMPLETION_BASH) {
        help_completion_bash(stdout);
    } else if (a->c.args.n) {
        const struct verb *v = verb_find(a->c.args.v[0]);
        if (!v) {
            const char *names[64];
            size_t n = 0;
            for (const struct verb *const *p = verb_all; *p && n < 64; p++)
                names[n++] = (*p)->name;
            char near[256];
            args_near(a->c.args.v[0], names, n, near, sizeof near);
            return err_set(e, ASSAY_EUSAGE, "help: unknown verb '%s'%s", a->c.args.v[0], near);
        }
        help_verb(v, stdout);
    } else {
        help_overview(stdout);
    }
    return 0;
}

// clang-format off
const struct verb verb_help = {
    .name = "help",
    .usage = "[VERB]",
    .summary = "this overview, a verb in full, the manual page, shell completion",
    .about = "Without an argument: the verbs and exit codes. With one: what 'assay VERB --help' prints.",
    .examples = "assay help run\n"
                "assay help --man | man -l -\n"
                "assay help --completion bash > ~/.local/share/bash-completion/completions/assay\n",
    .args_min = 0,
    .args_max = 1,
    .options_size = sizeof(struct help_args),
    .options = (const struct option *const[]){help_options, NULL},
    .run = run_help,
};
// clang-format on
