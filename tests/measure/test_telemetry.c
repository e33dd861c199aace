/* Telemetry: each tool's form, times against `date -u -d`, energy against integrals done by hand,
 * messages with their places. */
#include "harness/measure/telemetry.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct got {
    int n;
    struct {
        char device[32];
        int64_t ns;
        double w, u;
    } r[64];
};

static int on_reading(void *ctx, const struct telemetry_reading *t, struct err *e) {
    struct got *g = ctx;
    (void)e;
    cr_assert(g->n < 64);
    snprintf(g->r[g->n].device, 32, "%s", t->device);
    g->r[g->n].ns = t->wall_ns;
    g->r[g->n].w = t->power_w;
    g->r[g->n++].u = t->utilization;
    return 0;
}

static const struct telemetry_zone utc = {0};

static struct got parse(const char *text, const struct telemetry_zone *z) {
    struct got g = {0};
    struct err e = {0};
    cr_assert(eq(int, telemetry_parse(text, strlen(text), "t.csv", z, on_reading, &g, &e), 0), "%s", e.text);
    return g;
}

/* date -u -d '2024-01-31 14:30:22' +%s = 1706711422 */
#define NS(s) ((int64_t)((s)*1000) * 1000000)

Test(telemetry, reads_nvidia_smi) {
    struct got g = parse("timestamp, index, name, power.draw [W], utilization.gpu [%]\n"
                         "2024/01/31 14:30:22.123, 0, NVIDIA H100 80GB HBM3, 123.45 W, 37 %\n"
                         "2024/01/31 14:30:22.124, 1, NVIDIA H100 80GB HBM3, [N/A], [Not Supported]\n"
                         "timestamp, index, name, power.draw [W], utilization.gpu [%]\n"
                         "2024/01/31 14:30:23.123, 0, NVIDIA H100 80GB HBM3, 200.00 W, 0 %\n"
                         "2024/01/31 14:30:24.123, 0, NVIDIA H100 80G",
                         &utc);
    cr_assert(eq(int, g.n, 3));
    cr_assert(eq(str, g.r[0].device, "0"));
    cr_assert(eq(i64, g.r[0].ns, INT64_C(1706711422123000000)));
    cr_assert(eq(dbl, g.r[0].w, 123.45));
    cr_assert(eq(dbl, g.r[0].u, 0.37));
    cr_assert(isnan(g.r[1].w) && isnan(g.r[1].u));
    cr_assert(eq(dbl, g.r[2].w, 200));
}

Test(telemetry, reads_amd_smi_with_its_lists) {
    struct got g = parse("'CTRL' + 'C' to stop watching output:\n"
                         "timestamp,gpu,gfx_activity,vcn_activity,socket_power\n"
                         "1706711422,0,99,['N/A', 'N/A'],654\n1706711422,1,N/A,[0, 0],N/A\n",
                         &(struct telemetry_zone){.local = true});
    cr_assert(eq(int, g.n, 2));
    cr_assert(eq(i64, g.r[0].ns, INT64_C(1706711422000000000)));
    cr_assert(eq(dbl, g.r[0].w, 654));
    cr_assert(eq(dbl, g.r[0].u, 0.99));
    cr_assert(eq(str, g.r[1].device, "1"));
    cr_assert(isnan(g.r[1].w));
}

Test(telemetry, reads_times_in_every_form) {
    static const char *const times[] = {
        "2024-01-31T14:30:22.5Z", "2024-01-31 16:30:22.5+02:00", "2024-01-31T09:00:22.500000-0530",
        "1706711422.5",           "1706711422500",               "1706711422500000",
        "1706711422500000000",    "2024/01/31 14:30:22.5",
    };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char text[200];
        snprintf(text, sizeof text, "timestamp,power [mW]\n%s,1500\n", times[i]);
        struct got g = parse(text, &utc);
        cr_assert(eq(i64, g.r[0].ns, INT64_C(1706711422500000000)), "%s", times[i]);
        cr_assert(eq(dbl, g.r[0].w, 1.5));
    }
}

/* TZ=Europe/Berlin date -d '2024-01-31 15:30:22' +%s = 1706711422; in summer, 2024-07-31, the same clock
 * time is 1722432622. */
Test(telemetry, local_times_follow_the_zone_and_its_summer) {
    struct telemetry_zone z;
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
    tzset();
    cr_assert(eq(int, telemetry_zone_parse("local", &z, NULL), 0));
    struct got g = parse("timestamp,power\n2024/01/31 15:30:22,1\n2024/07/31 15:30:22,1\n", &z);
    cr_assert(eq(i64, g.r[0].ns, INT64_C(1706711422000000000)));
    cr_assert(eq(i64, g.r[1].ns, INT64_C(1722432622000000000)));
    cr_assert(eq(int, telemetry_zone_parse("+02:00", &z, NULL), 0));
    cr_assert(eq(i64, z.offset_s, 7200));
    struct err e = {0};
    cr_assert(eq(int, telemetry_zone_parse("Berlin", &z, &e), ASSAY_EUSAGE));
}

Test(telemetry, says_where_a_file_is_malformed) {
    static const char *const rows[][2] = {
        {"a,b\n1,2\n", "t.csv:1:1: expected a header with a column 'timestamp', found 'a,b'"},
        {"timestamp,x\n", "t.csv:1:1: expected a header with a column 'power.draw', 'socket_power' or 'power_w', found 'timestamp,x'"},
        {"timestamp,power\n\nyesterday,1\n", "t.csv:3:1: expected a time such as 2024/01/31 14:30:22.123, ISO 8601 or s since 1970, found 'yesterday'"},
        {"timestamp,power\n2024-13-01 00:00:00,1\n", "t.csv:2:1: expected a time such as 2024/01/31 14:30:22.123, ISO 8601 or s since 1970, found '2024-13-01 00:00:00'"},
        {"timestamp,power\n1706711422, 12 V\n", "t.csv:2:13: expected a power such as 123.45 W, found '12 V'"},
        {"timestamp,power\n1706711422,-3\n", "t.csv:2:12: expected a power from 0 to 10 MW, found '-3'"},
        {"timestamp,power,gpu\n1706711422,3\n", "t.csv:2:1: expected 3 columns as in the header, found '1706711422,3'"},
        {"timestamp,utilization\n1706711422,101 %\n", "t.csv:2:12: expected a utilisation from 0 to 100 %, found '101 %'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct got g = {0};
        struct err e = {0};
        cr_assert(eq(int, telemetry_parse(rows[i][0], strlen(rows[i][0]), "t.csv", &utc, on_reading, &g, &e),
                     ASSAY_EINPUT));
        cr_assert(eq(str, e.text, (char *)rows[i][1]));
    }
}

/* ---- energy ---- */

static void add(struct series_log *l, uint32_t round, double t_s, const char *device, double w) {
    char labels[64];
    snprintf(labels, sizeof labels, "{\"device\":\"%s\"}", device);
    cr_assert(eq(int, series_put(l, 0, "power_w", labels, PROM_GAUGE, w, NULL), 0));
    cr_assert(eq(int, series_put(l, 0, "utilization", labels, PROM_GAUGE, 0.5, NULL), 0));
    struct series_scrape s = {0, round, (int64_t)(t_s * 1e9), 0, 0, true};
    cr_assert(eq(int, series_commit(l, &s, true, NULL), 0));
}

static double at(const json_t *o, const char *name) {
    const json_t *v = json_object_get(o, name);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* Window 1..4 s. Device 0 at 0, 2, 4, 6 s: 100, 200, 200, 0 W. From 1 s (150 W) to 2 s: 175 J; 2..4 s:
 * 400 J: 575 J. Device 1 reads 50 W at 1.5 and 3.5 s: held to the edges, 150 J. Sum 725 J over 145
 * tokens: 5 J a token. */
Test(power, integrates_between_readings_and_holds_the_edges) {
    struct series_log l;
    uint32_t id;
    series_log_init(&l);
    cr_assert(eq(int, series_source_add(&l, "telemetry", "t.csv", &id, NULL), 0));
    static const double w[] = {100, 200, 200, 0};
    uint32_t round = 0;
    for (int i = 0; i < 4; i++)
        add(&l, round++, 2 * i, "0", w[i]);
    add(&l, round++, 1.5, "1", 50);
    add(&l, round++, 3.5, "1", 50);
    json_t *o;
    cr_assert(eq(int, power_report(&l, NS(1), NS(4), 145, 2, NS(5), &o, NULL), 0));
    cr_assert(epsilon_eq(dbl, at(o, "energy_j"), 725, 1e-9));
    cr_assert(epsilon_eq(dbl, at(o, "joules_per_output_token"), 5, 1e-12));
    cr_assert(eq(dbl, at(o, "coverage"), 1));
    const json_t *d = json_array_get(json_object_get(o, "devices"), 0);
    cr_assert(epsilon_eq(dbl, at(d, "energy_j"), 575, 1e-9));
    cr_assert(epsilon_eq(dbl, at(d, "mean_power_w"), 575 / 3.0, 1e-9));
    cr_assert(eq(dbl, at(d, "max_power_w"), 200));
    cr_assert(epsilon_eq(dbl, at(d, "mean_utilization"), 0.5, 1e-12));
    cr_assert(json_object_get(o, "warnings") == NULL);
    json_decref(o);

    /* four chips: no figure a token, and it says why */
    cr_assert(eq(int, power_report(&l, NS(1), NS(4), 145, 4, NS(5), &o, NULL), 0));
    cr_assert(json_object_get(o, "joules_per_output_token") == NULL);
    cr_assert_not_null(strstr(json_string_value(json_array_get(json_object_get(o, "warnings"), 0)),
                              "2 devices, the system has 4 chips"));
    json_decref(o);

    /* a limit of 1.5 s makes every pair a gap: device 0 is unknown but for nothing, device 1 at its edges */
    cr_assert(eq(int, power_report(&l, NS(1), NS(4), 145, 2, NS(1.5), &o, NULL), 0));
    d = json_object_get(o, "devices");
    cr_assert(eq(dbl, at(json_array_get(d, 0), "energy_j"), 0));
    cr_assert(eq(dbl, at(json_array_get(d, 0), "gaps"), 2));
    cr_assert(epsilon_eq(dbl, at(json_array_get(d, 1), "energy_j"), 50, 1e-9));
    cr_assert(epsilon_eq(dbl, at(json_array_get(d, 1), "coverage"), 1 / 3.0, 1e-12));
    cr_assert(json_object_get(o, "joules_per_output_token") == NULL);
    json_decref(o);
    series_log_release(&l);
}

Test(power, says_when_nothing_lies_in_the_window) {
    struct series_log l;
    uint32_t id;
    series_log_init(&l);
    cr_assert(eq(int, series_source_add(&l, "telemetry", "t.csv", &id, NULL), 0));
    add(&l, 0, 7200, "0", 100);
    json_t *o;
    cr_assert(eq(int, power_report(&l, NS(1), NS(4), 145, 0, NS(5), &o, NULL), 0));
    cr_assert_not_null(strstr(json_string_value(json_array_get(json_object_get(o, "warnings"), 0)), "time zone?"));
    json_decref(o);
    series_log_release(&l);
}
