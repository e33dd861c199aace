/* `assay price`: dated, sourced prices of a chip-hour, for the questions that speak of cost. */
#include "harness/cli/args.h"
#include "harness/cli/verbs.h"
#include "harness/core/clock.h"
#include "harness/core/embed.h"
#include "results/query.h"
#include "results/store.h"

#include <string.h>

struct price_args {
    struct common c;
    const char *basis, *from, *source;
};

#define AT(field) offsetof(struct price_args, field)
// clang-format off
static const struct option price_options[] = {
    {.name = "basis", .type = OPT_STR, .offset = AT(basis), .unit = "BASIS", .def = "list",
     .help = "add: list, contract or tco-model"},
    {.name = "from", .type = OPT_STR, .offset = AT(from), .unit = "YYYY-MM-DD",
     .help = "add: the first day it holds; else today (UTC)"},
    {.name = "source", .type = OPT_STR, .offset = AT(source), .unit = "TEXT",
     .help = "add: where the figure was read; required"},
    {0},
};
// clang-format on

static int price_list(struct price_args *a, struct err *e) {
    struct store *s = NULL;
    int rc = store_open(a->c.db, STORE_READ, &s, NULL, e);
    if (rc)
        return rc;
    rc = query_run(s, "prices", NULL, 0, a->c.json ? QUERY_JSON : QUERY_TABLE, stdout, e);
    store_close(s);
    return rc;
}

/* A misspelt chip is priced all the same (it may be a system's own name), but no question would find it. */
static void warn_unknown(const char *chip) {
    static const char folder[] = "backends/tpu_sim/chips/";
    const char *names[64];
    char text[64][32], near[256];
    size_t files, n = 0;
    const struct embedded *file = embedded_all(&files);
    if (embedded_find_in("backends/tpu_sim/chips", chip, ".json"))
        return;
    for (size_t i = 0; i < files && n < 64; i++)
        if (!strncmp(file[i].path, folder, sizeof folder - 1)) {
            const char *name = file[i].path + sizeof folder - 1;
            snprintf(text[n], sizeof text[n], "%.*s", (int)strcspn(name, "."), name);
            names[n] = text[n];
            n++;
        }
    args_near(chip, names, n, near, sizeof near);
    fprintf(stderr,
            "assay: warn: no chip '%s' ships; the price counts for systems whose chip has that name%s\n",
            chip, near);
}

static int price_add(struct price_args *a, struct err *e) {
    struct store *s = NULL;
    char today[40];
    if (a->c.args.n != 3)
        return err_set(e, ASSAY_EUSAGE, "price add: expected CHIP and USD");
    if (!a->source)
        return err_set(e, ASSAY_EUSAGE,
                       "price add: option '--source TEXT' is required: a price without a source "
                       "cannot be checked");
    clock_rfc3339(clock_wall_ns(), today, sizeof today);
    today[strlen("YYYY-MM-DD")] = '\0';
    struct price p = {.chip = a->c.args.v[1],
                      .valid_from = a->from ? a->from : today,
                      .basis = a->basis,
                      .source = a->source};
    if (parse_f64(a->c.args.v[2], &p.usd_per_chip_hour))
        return err_set(e, ASSAY_EUSAGE,
                       "price add: expected a number of USD per chip-hour, found '%s'",
                       a->c.args.v[2]);
    int rc = store_open(a->c.db, STORE_WRITE, &s, NULL, e);
    if (rc)
        return rc;
    rc = store_price_add(s, &p, e);
    store_close(s);
    if (rc)
        return err_wrap(e, "price add");
    warn_unknown(p.chip);
    return price_list(a, e);
}

static int run_price(void *options, struct err *e) {
    struct price_args *a = options;
    static const char *const actions[] = {"add", "list"};
    const char *action = a->c.args.v[0];
    if (!strcmp(action, "add"))
        return price_add(a, e);
    if (!strcmp(action, "list"))
        return a->c.args.n == 1 ? price_list(a, e)
                                : err_set(e, ASSAY_EUSAGE, "price list: expected nothing more");
    char near[256];
    args_near(action, actions, 2, near, sizeof near);
    return err_set(e, ASSAY_EUSAGE, "price: expected add or list, found '%s'%s", action, near);
}

// clang-format off
const struct verb verb_price = {
    .name = "price",
    .usage = "add CHIP USD | list",
    .summary = "what a chip-hour costs, dated and sourced",
    .about = "Prices belong to the planner: they are never signed and never part of a result. The newest "
             "one that has begun counts, for each basis; 'assay query cheapest' uses them.",
    .examples = "assay price add v6e 2.70 --source 'price page of the provider, on demand'\n"
                "assay price list\n",
    .args_min = 1,
    .args_max = 3,
    .options_size = sizeof(struct price_args),
    .options = (const struct option *const[]){price_options, common_store, common_output, NULL},
    .run = run_price,
};
// clang-format on
