/* Prices: the planner's own data. Dated and sourced, never signed, never part of a result. */
#include "results/store_internal.h"

#include <string.h>

int store_price_add(struct store *s, const struct price *p, struct err *e) {
    static const char *const bases[] = {"list", "contract", "tco-model"};
    bool known = false;
    int64_t good = 0, there = 0;
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++)
        known = known || strcmp(p->basis, bases[i]) == 0;
    if (!known)
        return err_set(e, ASSAY_EUSAGE, "basis: expected list, contract or tco-model, found '%s'",
                       p->basis);
    if (!*p->chip || !*p->source)
        return err_set(e, ASSAY_EUSAGE, "a price needs a chip and a source");
    if (!(p->usd_per_chip_hour >= 0 && p->usd_per_chip_hour < 1e9))
        return err_set(e, ASSAY_EUSAGE, "price: expected 0 to 1e9 USD per chip-hour, found %g",
                       p->usd_per_chip_hour);
    int rc = sql_begin(&s->c, e);
    if (!rc)
        rc = sql_get_int(&s->c, e, &good, NULL, "SELECT ?1 IS date(?1)", "t", p->valid_from);
    if (!rc && !good)
        rc = err_set(e, ASSAY_EUSAGE, "valid from: expected a date as YYYY-MM-DD, found '%s'",
                     p->valid_from);
    if (!rc)
        rc = sql_get_int(&s->c, e, &there, NULL,
                         "SELECT count(*) FROM price WHERE chip=? AND basis=? AND valid_from=?",
                         "ttt", p->chip, p->basis, p->valid_from);
    if (!rc && there)
        rc = err_set(e, ASSAY_EUSAGE, "there is a %s price of '%s' from %s already", p->basis,
                     p->chip, p->valid_from);
    if (!rc)
        rc = sql_run(&s->c, e, "INSERT INTO price VALUES(?,?,?,?,?)", "ttdtt", p->chip,
                     p->valid_from, p->usd_per_chip_hour, p->basis, p->source);
    if (!rc)
        rc = sql_commit(&s->c, e);
    if (rc)
        sql_rollback(&s->c);
    return rc;
}
