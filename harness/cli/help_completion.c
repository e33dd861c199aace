/* The bash completion, from the verb table. What a value may be follows from the word that help
 * shows for it: FILE completes files, BACKEND the backends, WORKLOAD the shipped definitions and
 * files. */
#include "harness/cli/help.h"

#include "backends/backend.h"
#include "harness/cli/args.h"
#include "harness/cli/verbs.h"
#include "harness/core/embed.h"
#include "results/query.h"

#include <string.h>

/* Base names of the embedded files of a directory, without suffix. */
static void embedded_names(FILE *out, const char *dir) {
    size_t n, length = strlen(dir);
    const struct embedded *all = embedded_all(&n);
    for (size_t i = 0; i < n; i++) {
        const char *name = all[i].path;
        if (strncmp(name, dir, length) || name[length] != '/')
            continue;
        name += length + 1;
        size_t stem = strcspn(name, ".");
        fprintf(out, " %.*s", (int)stem, name);
    }
}

static void backend_names(FILE *out) {
    for (const struct backend_ops *const *b = backend_all; *b; b++)
        fprintf(out, " %s", (*b)->name);
}

static void value_case(FILE *out, const struct option *o) {
    char words[256];
    const char *word = args_value_word(o, words, sizeof words), *list = NULL;
    if (!word)
        return;
    char letter = args_letter(o->name);
    if (letter)
        fprintf(out, "        %s:--%s|%s:-%c) ", "*", o->name, "*", letter);
    else
        fprintf(out, "        %s:--%s) ", "*", o->name);
    if (o->type == OPT_ENUM) {
        fputs("words='", out);
        for (int i = 0; o->choices[i]; i++)
            fprintf(out, "%s%s", i ? " " : "", o->choices[i]);
        fputs("' ;;\n", out);
    } else if (!strcmp(word, "BACKEND")) {
        fputs("words='", out);
        backend_names(out);
        fputs("' ;;\n", out);
    } else if (!strcmp(word, "PACK")) {
        list = "schemas/rules";
    } else if (!strcmp(word, "MODEL")) {
        list = "workloads/models";
    } else if (!strcmp(word, "FILE")) {
        fputs("files=1 ;;\n", out);
    } else {
        fputs("words= ;;\n", out);
    }
    if (list) {
        fputs("words='", out);
        embedded_names(out, list);
        fputs("' files=1 ;;\n", out);
    }
}

static void query_names(FILE *out) {
    for (const struct named_query *q = named_queries; q->name; q++)
        fprintf(out, " %s", q->name);
}

static void shipped_names(FILE *out) {
    embedded_names(out, "workloads/library");
    embedded_names(out, "workloads/models");
    embedded_names(out, "backends/tpu_sim/chips");
    embedded_names(out, "schemas/rules");
}

static void workload_names(FILE *out) {
    embedded_names(out, "workloads/library");
}

static void workload_and_model_names(FILE *out) {
    embedded_names(out, "workloads/library");
    embedded_names(out, "workloads/models");
}

static void verb_names(FILE *out) {
    for (const struct verb *const *v = verb_all; *v; v++)
        fprintf(out, " %s", (*v)->name);
}

static void key_actions(FILE *out) {
    fputs(" new list trust revoke", out);
}

static void price_actions(FILE *out) {
    fputs(" add list", out);
}

static void newest(FILE *out) {
    fputs(" latest", out);
}

/* What a verb's argument may be, beside files. */
static const struct {
    const struct verb *verb;
    void (*names)(FILE *out);
} arguments[] = {
    {&verb_run, workload_names},    {&verb_sweep, workload_names},
    {&verb_serve, workload_and_model_names}, {&verb_inspect, shipped_names},
    {&verb_query, query_names},     {&verb_verify, newest},
    {&verb_show, newest},           {&verb_key, key_actions},
    {&verb_price, price_actions},   {&verb_help, verb_names},
};

void help_completion_bash(FILE *out) {
    fputs("# bash completion for assay, written by 'assay help --completion bash'\n"
          "_assay() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
          "verb=${COMP_WORDS[1]}\n"
          "    local words= files=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        COMPREPLY=($(compgen -W '",
          out);
    for (const struct verb *const *v = verb_all; *v; v++)
        fprintf(out, "%s ", (*v)->name);
    fputs("--help --version' -- \"$cur\"))\n"
          "        return\n"
          "    fi\n"
          "    # an option's value\n"
          "    case $verb:$prev in\n",
          out);
    /* one case a name: an option means the same in every verb */
    for (const struct verb *const *v = verb_all; *v; v++) {
        const struct option *o;
        for (size_t i = 0; (o = args_row_at(*v, i)); i++) {
            bool seen = false;
            for (const struct verb *const *u = verb_all; u != v && !seen; u++)
                seen = args_row(*u, o->name) != NULL;
            if (!seen && !(o->flags & OPTION_HIDDEN))
                value_case(out, o);
        }
    }
    fputs("        *) prev= ;;\n"
          "    esac\n"
          "    if [ -n \"$prev\" ]; then\n"
          "        COMPREPLY=($(compgen ${files:+-f} -W \"$words\" -- \"$cur\"))\n"
          "        return\n"
          "    fi\n"
          "    case $verb in\n",
          out);
    for (const struct verb *const *v = verb_all; *v; v++) {
        fprintf(out, "        %s) words='", (*v)->name);
        const struct option *o;
        for (size_t i = 0; (o = args_row_at(*v, i)); i++)
            if (!(o->flags & OPTION_HIDDEN))
                fprintf(out, "%s--%s", i ? " " : "", o->name);
        fputs("'", out);
        if (strstr((*v)->usage, "WORKLOAD") || strstr((*v)->usage, "FILE") ||
            strstr((*v)->usage, "DATA"))
            fputs(" files=1", out);
        for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++)
            if (arguments[i].verb == *v) {
                fputs("\n            [ \"${cur#-}\" = \"$cur\" ] && words='", out);
                arguments[i].names(out);
                fputs("'", out);
            }
        fputs(" ;;\n", out);
    }
    fputs("    esac\n"
          "    [ \"${cur#-}\" = \"$cur\" ] || files=\n"
          "    COMPREPLY=($(compgen ${files:+-f} -W \"$words\" -- \"$cur\"))\n"
          "}\n"
          "complete -o filenames -F _assay assay\n",
          out);
}
