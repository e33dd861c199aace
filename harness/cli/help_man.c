/* The manual page, from the verb table, as troff (man macros). */
#include "harness/cli/help.h"

#include "backends/backend.h"
#include "harness/cli/args.h"
#include "harness/core/version.h"

#include <string.h>

/* What troff would read otherwise, and what its ASCII devices lack. */
static const struct {
    const char *text, *troff;
} escapes[] = {
    {"\\", "\\e"},  {"-", "\\-"},   {"'", "\\(aq"}, {"~", "\\(ti"},
    {"^", "\\(ha"}, {"`", "\\(ga"}, {"…", "..."},   {"µ", "\\(mc"},
};

/* Text as troff: escapes, and no line begins with a control character. Paragraphs are apart by an
 * empty line, as in the rows. */
static void text(FILE *out, const char *s) {
    bool start = true;
    while (*s) {
        if (s[0] == '\n' && s[1] == '\n') {
            fputs("\n.PP\n", out);
            s += 2;
            start = true;
            continue;
        }
        if (start && *s == '.')
            fputs("\\&", out);
        start = *s == '\n';
        size_t i = 0;
        while (i < sizeof escapes / sizeof *escapes &&
               strncmp(s, escapes[i].text, strlen(escapes[i].text)) != 0)
            i++;
        if (i < sizeof escapes / sizeof *escapes) {
            fputs(escapes[i].troff, out);
            s += strlen(escapes[i].text);
        } else {
            putc(*s++, out);
        }
    }
}

static void rows(FILE *out, const struct help_row *r) {
    for (; r->name; r++) {
        fputs(".TP\n.B ", out);
        text(out, r->name);
        putc('\n', out);
        text(out, r->text);
        putc('\n', out);
    }
}

static void option_row(FILE *out, const struct option *o) {
    char words[256], remarks[256];
    const char *word = args_value_word(o, words, sizeof words);
    char letter = args_letter(o->name);
    fputs(".TP\n", out);
    if (letter)
        fprintf(out, "\\fB\\-%c\\fR, ", letter);
    fputs("\\fB\\-\\-", out);
    text(out, o->name);
    fputs("\\fR", out);
    if (word) {
        fputs(" \\fI", out);
        text(out, word);
        fputs("\\fR", out);
    }
    putc('\n', out);
    help_remarks(o, remarks, sizeof remarks);
    text(out, o->help ? o->help : "");
    text(out, remarks);
    putc('\n', out);
}

static void backend_rows(FILE *out) {
    fputs(".SH BACKENDS\nOptions of a backend are set with \\fB\\-o\\fR \\fIKEY=VALUE\\fR.\n", out);
    for (const struct backend_ops *const *b = backend_all; *b; b++) {
        fputs(".SS ", out);
        text(out, (*b)->name);
        putc('\n', out);
        text(out, (*b)->summary);
        putc('\n', out);
        for (const struct option *o = (*b)->options; o && o->type != OPT_END; o++) {
            char words[256], remarks[512];
            const char *word = args_value_word(o, words, sizeof words);
            if (o->flags & OPTION_HIDDEN)
                continue;
            fputs(".TP\n\\fB\\-o ", out);
            text(out, o->name);
            fputs("\\fR=\\fI", out);
            text(out, word ? word : "BOOL");
            fputs("\\fR\n", out);
            options_remarks(o, remarks, sizeof remarks);
            text(out, o->help ? o->help : "");
            text(out, remarks);
            putc('\n', out);
        }
    }
}

void help_man(FILE *out) {
    fprintf(out, ".\\\" Written by 'assay help --man' from the table of verbs.\n");
    fputs(".TH ASSAY 1 \"\" \"assay ", out);
    text(out, assay_version);
    fputs("\" \"User Commands\"\n.SH NAME\nassay \\- ", out);
    text(out, help_tagline);
    fputs("\n.SH SYNOPSIS\n", out);
    for (const struct verb *const *v = verb_all; *v; v++) {
        fputs(v == verb_all ? "" : ".br\n", out);
        fputs("\\fBassay ", out);
        text(out, (*v)->name);
        fputs("\\fR", out);
        if (*(*v)->usage) {
            fputs(" \\fI", out);
            text(out, (*v)->usage);
            fputs("\\fR", out);
        }
        fputs(" [\\fIOPTIONS\\fR]\n", out);
    }
    fputs(".SH DESCRIPTION\n"
          "Results go to standard output, everything else to standard error. "
          "With \\fB\\-\\-json\\fR a verb prints exactly one JSON object.\n"
          ".SH VERBS\n",
          out);
    bool backends = false;
    for (const struct verb *const *v = verb_all; *v; v++) {
        fputs(".SS \"assay ", out);
        text(out, (*v)->name);
        if (*(*v)->usage)
            putc(' ', out);
        text(out, (*v)->usage);
        fputs("\"\n", out);
        text(out, (*v)->about);
        putc('\n', out);
        const struct option *o;
        for (size_t i = 0; (o = args_row_at(*v, i)); i++)
            if (!(o->flags & OPTION_HIDDEN) && o != common_help)
                option_row(out, o);
        if ((*v)->examples) {
            fputs(".PP\nExamples:\n.PP\n.nf\n.RS\n", out);
            text(out, (*v)->examples);
            fputs(".RE\n.fi\n", out);
        }
        backends |= (*v)->backends;
    }
    if (backends)
        backend_rows(out);
    fputs(".SH EXIT STATUS\n", out);
    rows(out, help_exits);
    fputs(".SH ENVIRONMENT\n", out);
    rows(out, help_environment);
    fputs(".SH FILES\n", out);
    rows(out, help_files);
}
