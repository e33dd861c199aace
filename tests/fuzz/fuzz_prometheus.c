/* Any bytes as a /metrics text, in both dialects: samples or an error that names the place; and the
 * same samples however the bytes are cut into feeds. */
#include "harness/measure/prometheus.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    uint64_t hash, samples;
};

static void mix(struct seen *s, const void *p, size_t n) {
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        s->hash = (s->hash ^ b[i]) * UINT64_C(1099511628211);
    s->hash = (s->hash ^ n) * UINT64_C(1099511628211);
}

static int on_sample(void *ctx, const struct prom_sample *p, struct err *e) {
    struct seen *s = ctx;
    (void)e;
    s->samples++;
    mix(s, p->name.p, p->name.n);
    mix(s, p->family.p, p->family.n);
    mix(s, &p->value, sizeof p->value);
    mix(s, &p->timestamp_s, sizeof p->timestamp_s);
    for (int i = 0; i < p->nlabels; i++) {
        mix(s, p->labels[i].name.p, p->labels[i].name.n);
        mix(s, p->labels[i].value.p, p->labels[i].value.n);
    }
    if (!p->name.n || p->kind >= PROM_KINDS)
        abort();
    return 0;
}

static int read_all(const uint8_t *data, size_t size, bool openmetrics, size_t step, struct seen *s,
                    struct err *e) {
    struct prom p;
    int rc = 0;
    *s = (struct seen){0};
    prom_init(&p, "fuzz", openmetrics, on_sample, s);
    for (size_t at = 0; !rc && at < size; at += step)
        rc = prom_feed(&p, data + at, size - at < step ? size - at : step, e);
    if (!rc)
        rc = prom_finish(&p, e);
    prom_release(&p);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int dialect = 0; dialect < 2; dialect++) {
        struct seen whole, parts;
        struct err e = {0}, again = {0};
        int rc = read_all(data, size, dialect, size + 1, &whole, &e);
        if (rc && strncmp(e.text, "fuzz:", 5))
            abort();
        size_t step = 1 + (size ? data[0] % 7 : 0);
        if (read_all(data, size, dialect, step, &parts, &again) != rc ||
            strcmp(e.text, again.text) || whole.hash != parts.hash || whole.samples != parts.samples)
            abort();
    }
    return 0;
}
