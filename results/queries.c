/* The named questions of a planner, one row each: parameters and SQL over the documented views. Every
 * row that shows a figure also shows its class, the k of n runs of its campaign that were valid, and
 * how many keys signed it. Parameters with the default '' do not restrict; texts are GLOB patterns. */
#include "results/query.h"

#define LOAD "iif(load_value>0,printf('%s:%g',load_kind,load_value),load_kind) AS load"
#define PROOF "valid_runs||'/'||started_runs AS runs, signatures, run"
#define ANY(column) "(:" column "='' OR " column " GLOB :" column ")"
#define LIMIT_MS(column, param) "(:" param "='' OR " column "<=:" param ")"
#define SLO LIMIT_MS("ttft_p99_ms", "ttft_ms") " AND " LIMIT_MS("tpot_p99_ms", "tpot_ms")

/* The run with the best `value` (AS best) of each group, by id alone; its row is looked up afterwards, so
 * that the costly columns are computed for the winners only. */
#define BEST(agg, value, where, group)                                                             \
    "WITH p AS MATERIALIZED (SELECT run_id, workload, model, class, system, chip, chips, load_kind, " value \
    " AS v FROM v_point WHERE " where "), b AS (SELECT run_id, " agg "(v) AS best FROM p WHERE v>0"   \
    " GROUP BY " group ") "
#define OF_BEST " FROM b CROSS JOIN v_point r USING(run_id) "

#define P_WORKLOAD {"workload", "", "name of the workload, * allowed"}
#define P_CLASS {"class", "", "measured, simulated, emulated, projected or none"}
#define P_CHIP {"chip", "", "chip of the system, * allowed"}
#define P_TTFT {"ttft_ms", "", "limit on p99 TTFT"}
#define P_TPOT {"tpot_ms", "", "limit on p99 TPOT"}

// clang-format off
const struct named_query named_queries[] = {
    {"best-throughput", "highest output token rate, per workload, model and system",
     {P_WORKLOAD, P_CLASS, P_CHIP},
     BEST("max", "output_tokens_per_s", ANY("workload") " AND " ANY("class") " AND " ANY("chip"),
          "workload, model, class, system")
     "SELECT class, workload, model, system, chip, chips, output_tokens_per_s, " LOAD ", ttft_p99_ms, tpot_p99_ms, " PROOF OF_BEST
     "ORDER BY workload, output_tokens_per_s DESC"},

    {"best-throughput-per-chip", "highest output token rate of one chip, per workload, model and system",
     {P_WORKLOAD, P_CLASS, P_CHIP},
     BEST("max", "output_tokens_per_s/chips", "chips>0 AND " ANY("workload") " AND " ANY("class")
          " AND " ANY("chip"), "workload, model, class, system")
     "SELECT class, workload, model, system, chip, chips, best AS output_tokens_per_s_per_chip, output_tokens_per_s, " LOAD ","
     " ttft_p99_ms, tpot_p99_ms, " PROOF OF_BEST "ORDER BY workload, best DESC"},

    {"campaign-runs", "all runs of a campaign, in the order they were started",
     {{"campaign", "", "its name, * allowed; the newest campaign when not given"}},
     "SELECT campaign, attempt, verdict, class, system, " LOAD ", started, completed, failed, duration_ns/1e9 AS duration_s,"
     " (SELECT value FROM v_result x WHERE x.run_id=v_run.run_id AND metric='output_tokens_per_s' AND stat='value')"
     " AS output_tokens_per_s, reason, signatures, run FROM v_run"
     " WHERE iif(:campaign='', campaign_id=(SELECT campaign_id FROM run ORDER BY run_id DESC LIMIT 1),"
     " campaign GLOB :campaign) ORDER BY campaign_id, attempt"},

    {"campaigns", "each campaign: how many runs were started, and what became of them",
     {{"campaign", "", "its name, * allowed"}},
     "SELECT campaign, valid||'/'||started AS valid_of_started, invalid, aborted, open FROM v_campaign"
     " WHERE " ANY("campaign") " ORDER BY campaign"},

    {"cheapest", "cost of a million output tokens within latency limits, cheapest first",
     {P_WORKLOAD, P_TTFT, P_TPOT, {"basis", "", "list, contract or tco-model"}, P_CLASS},
     "WITH b AS (SELECT run_id, basis, usd_per_chip_hour, price_from, min(usd_per_mtok) AS best FROM v_usd_per_mtok"
     " WHERE usd_per_mtok IS NOT NULL AND " SLO " AND " ANY("workload") " AND " ANY("basis") " AND " ANY("class")
     " GROUP BY workload, model, class, system, basis)"
     " SELECT class, workload, model, system, chips, best AS usd_per_mtok, basis, usd_per_chip_hour, price_from,"
     " output_tokens_per_s, " LOAD ", ttft_p99_ms, tpot_p99_ms, " PROOF OF_BEST "ORDER BY workload, usd_per_mtok"},

    {"chips-for-rate", "chips needed for a request rate within latency limits, with headroom",
     {{"rate", NULL, "requests per second"}, P_TTFT, P_TPOT, {"headroom", "0.3", "share kept free"}, P_WORKLOAD, P_CLASS},
     BEST("max", "requests_per_s", "chips>0 AND " SLO " AND " ANY("workload") " AND " ANY("class"),
          "workload, model, class, system")
     "SELECT class, workload, model, system, chips AS chips_per_system, requests_per_s AS requests_per_s_per_system,"
     " CAST(ceil(:rate*(1+:headroom)/best) AS INTEGER) AS systems,"
     " CAST(ceil(:rate*(1+:headroom)/best) AS INTEGER)*chips AS chips, " LOAD ", ttft_p99_ms, tpot_p99_ms, " PROOF OF_BEST
     "ORDER BY workload, 8"},

    {"dropped-runs", "runs that were started and gave no valid result, newest first",
     {{"campaign", "", "its name, * allowed"}, P_WORKLOAD},
     "SELECT verdict, reason, class, workload, system, campaign, attempt, started, completed, failed, run FROM v_run"
     " WHERE verdict<>'VALID' AND " ANY("campaign") " AND " ANY("workload") " ORDER BY run_id DESC"},

    {"failures", "share of requests that failed, worst first",
     {P_WORKLOAD, P_CLASS, {"above", "0", "least share of failed requests"}},
     "SELECT class, workload, system, " LOAD ", verdict, issued, failed, 1.0*failed/issued AS failed_share, started, run"
     " FROM v_run WHERE issued>0 AND failed>0 AND 1.0*failed/issued>:above AND " ANY("workload") " AND " ANY("class")
     " ORDER BY failed_share DESC, run_id DESC"},

    {"figures", "every published figure of one run",
     {{"run", "", "its id, or a beginning or end of it; the newest valid run when not given"}, {"metric", "", "name, * allowed"}},
     "SELECT class, metric, stat, value, unit, better, n, ci_level, ci_lo, ci_hi, run FROM v_result"
     " WHERE run_id=iif(:run='',(SELECT run_id FROM v_run WHERE verdict='VALID' AND mode='performance' ORDER BY run_id DESC LIMIT 1),"
     " (SELECT run_id FROM run WHERE uuid GLOB :run||'*' OR uuid GLOB '*'||:run ORDER BY run_id DESC LIMIT 1))"
     " AND " ANY("metric") " ORDER BY metric, stat"},

    {"knee", "load at which p99 TTFT first exceeds a multiple of that at the lowest load",
     {P_WORKLOAD, P_CLASS, {"factor", "2", "multiple of the lowest load's p99 TTFT"}},
     "WITH p AS (SELECT run_id, workload, workload_version, model, class, system, load_kind, load_value, ttft_p99_ms,"
     " first_value(ttft_p99_ms) OVER w AS lowest_ms, first_value(load_value) OVER w AS lowest_load"
     " FROM v_point WHERE ttft_p99_ms>0 AND " ANY("workload") " AND " ANY("class")
     " WINDOW w AS (PARTITION BY workload, workload_version, model, class, system, load_kind ORDER BY load_value, run_id)),"
     " b AS (SELECT run_id, lowest_load, lowest_ms, min(load_value) AS best FROM p WHERE ttft_p99_ms>:factor*lowest_ms"
     " GROUP BY workload, workload_version, model, class, system, load_kind)"
     " SELECT class, workload, model, system, load_kind, lowest_load, lowest_ms AS lowest_ttft_p99_ms, best AS knee_load,"
     " ttft_p99_ms, output_tokens_per_s, " PROOF OF_BEST "ORDER BY workload, system"},

    {"latest", "newest valid run of each workload, model and system",
     {P_WORKLOAD, P_CLASS, P_CHIP},
     BEST("max", "started_ns", ANY("workload") " AND " ANY("class") " AND " ANY("chip"), "workload, model, class, system")
     "SELECT class, workload, model, system, chips, started, " LOAD ", output_tokens_per_s, requests_per_s, ttft_p99_ms, tpot_p99_ms,"
     " harness_version, " PROOF OF_BEST "ORDER BY best DESC"},

    {"lengths-effect", "token rate by the lengths that requests really had",
     {P_CHIP, P_CLASS, {"model", "", "name of the model, * allowed"}},
     "SELECT class, model, workload, system, chips, round(mean_isl,1) AS mean_isl, round(mean_osl,1) AS mean_osl, " LOAD ","
     " output_tokens_per_s, output_tokens_per_s/nullif(chips,0) AS output_tokens_per_s_per_chip, tpot_p50_ms, " PROOF
     " FROM v_point WHERE mean_osl>0 AND (:model='' OR coalesce(model,'') GLOB :model) AND " ANY("chip") " AND " ANY("class")
     " ORDER BY model, system, mean_isl, mean_osl"},

    {"max-load-under-slo", "highest load that keeps within latency limits, per workload, model and system",
     {P_TTFT, P_TPOT, P_WORKLOAD, P_CLASS},
     BEST("max", "load_value", SLO " AND " ANY("workload") " AND " ANY("class"),
          "workload, model, class, system, load_kind")
     "SELECT class, workload, model, system, chips, load_kind, load_value, requests_per_s, output_tokens_per_s, ttft_p99_ms,"
     " tpot_p99_ms, " PROOF OF_BEST "ORDER BY workload, system, load_kind"},

    {"pareto", "throughput against interactivity: the runs that no other run beats in both",
     {P_WORKLOAD, P_CLASS, P_CHIP},
     "WITH p AS (SELECT run_id, workload, model, class, system, output_tokens_per_s/chips AS per_chip, tokens_per_s_per_user AS user"
     " FROM v_point WHERE chips>0 AND output_tokens_per_s>0 AND tokens_per_s_per_user>0 AND " ANY("workload") " AND "
     ANY("class") " AND " ANY("chip") "),"
     " f AS (SELECT *, max(per_chip) OVER (PARTITION BY workload, model, class, system ORDER BY user DESC, per_chip DESC"
     " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS better FROM p),"
     " b AS (SELECT run_id, per_chip AS best FROM f WHERE better IS NULL OR per_chip>better)"
     " SELECT class, workload, model, system, chips, tokens_per_s_per_user, best AS output_tokens_per_s_per_chip, " LOAD ","
     " ttft_p99_ms, tpot_p99_ms, " PROOF OF_BEST "ORDER BY workload, class, system, tokens_per_s_per_user"},

    {"power", "energy over the measured window and per output token, least first",
     {P_WORKLOAD, P_CLASS, P_CHIP},
     "WITH j AS (SELECT run_id, CAST(payload AS TEXT)->'$.predicate.power' AS v FROM envelope)"
     " SELECT class, workload, model, system, chips, " LOAD ", v->>'$.joules_per_output_token' AS joules_per_output_token,"
     " v->>'$.mean_power_w' AS mean_power_w, v->>'$.energy_j' AS energy_j, json_array_length(v,'$.devices') AS devices,"
     " v->>'$.coverage' AS coverage, output_tokens_per_s, " PROOF
     " FROM j JOIN v_point USING(run_id) WHERE v IS NOT NULL AND " ANY("workload") " AND " ANY("class") " AND " ANY("chip")
     " ORDER BY workload, joules_per_output_token IS NULL, joules_per_output_token"},

    {"prices", "the prices on file, newest first",
     {P_CHIP},
     "SELECT chip, basis, valid_from, usd_per_chip_hour, source FROM price WHERE " ANY("chip")
     " ORDER BY chip, basis, valid_from DESC"},

    {"run-variation", "spread of a metric over the valid runs of each campaign",
     {{"metric", "output_tokens_per_s", "its name"}, {"stat", "", "its statistic"}, {"campaign", "", "its name, * allowed"},
      {"runs", "2", "least number of valid runs"}},
     "SELECT class, campaign, metric, stat, unit, count(*) AS n, avg(value) AS mean, min(value) AS min, max(value) AS max,"
     " iif(count(*)>1, sqrt(max(0,avg(value*value)-avg(value)*avg(value))*count(*)/(count(*)-1))/avg(value), NULL) AS cv,"
     " count(*)||'/'||max(started_runs) AS runs, min(signatures) AS signatures FROM v_result"
     " WHERE metric=:metric AND " ANY("stat") " AND " ANY("campaign")
     " GROUP BY campaign_id, class, metric, stat, unit HAVING count(*)>=:runs ORDER BY cv DESC"},

    {"scaling", "token rate per chip against the smallest system of the same chip",
     {P_WORKLOAD, P_CLASS, P_CHIP},
     BEST("max", "output_tokens_per_s", "chips>0 AND " ANY("workload") " AND " ANY("class")
          " AND " ANY("chip"), "workload, model, class, chip, chips")
     "SELECT class, workload, model, chip, chips, output_tokens_per_s, best/chips AS output_tokens_per_s_per_chip,"
     " best/chips/first_value(best/chips) OVER (PARTITION BY workload, model, class, chip ORDER BY chips) AS efficiency, "
     LOAD ", " PROOF OF_BEST "ORDER BY workload, model, class, chip, chips"},

    {"server", "what the server says of each run beside what the client says, newest first",
     {P_WORKLOAD, {"run", "", "its id, or a beginning of it"}},
     "WITH j AS (SELECT run_id, CAST(payload AS TEXT)->'$.predicate.server' AS v FROM envelope)"
     " SELECT class, workload, system, " LOAD ", v->>'$.engine' AS engine,"
     " v->>'$.beside_client.generation_tokens.server' AS server_tokens, v->>'$.beside_client.generation_tokens.client' AS client_tokens,"
     " (v->>'$.beside_client.ttft_ns.server')/1e6 AS server_ttft_mean_ms, (v->>'$.beside_client.ttft_ns.client')/1e6 AS client_ttft_mean_ms,"
     " (v->>'$.queue_time_ns.mean')/1e6 AS queue_mean_ms, v->>'$.kv_cache_usage.max' AS kv_cache_max,"
     " v->>'$.preemptions.window' AS preemptions, v->>'$.prefix_cache_hit_share' AS prefix_hit_share,"
     " v->>'$.running.max' AS running_max, v->>'$.waiting.max' AS waiting_max, " PROOF
     " FROM j JOIN v_run USING(run_id) WHERE v IS NOT NULL AND " ANY("workload") " AND (:run='' OR run GLOB :run||'*')"
     " ORDER BY run_id DESC"},

    {"signatures", "who signed each record",
     {{"campaign", "", "its name, * allowed"}, {"below", "1000000", "only records with fewer signatures"}},
     "SELECT class, workload, system, verdict, signatures, signer_owners, (SELECT group_concat(owner||' '||substr(keyid,8,12),', ')"
     " FROM run_end x JOIN signature USING(payload_sha256) JOIN key USING(keyid) WHERE x.run_id=v_run.run_id) AS signers,"
     " record_sha256, campaign, started, run FROM v_run WHERE record_sha256<>'' AND " ANY("campaign") " AND signatures<:below"
     " ORDER BY run_id DESC"},

    {"sim-vs-measured", "a metric as simulated and as measured on the same workload, chip and load",
     {{"metric", "output_tokens_per_s", "its name"}, {"stat", "", "its statistic"}, P_WORKLOAD, P_CHIP},
     "WITH v AS (SELECT class, workload, workload_version, model, chip, chips, load_kind, load_value, metric, stat, unit,"
     " avg(value) AS mean, count(*) AS n, min(signatures) AS signatures FROM v_result WHERE metric=:metric AND " ANY("stat")
     " AND " ANY("workload") " AND " ANY("chip") " AND class IN('simulated','measured')"
     " GROUP BY class, workload, workload_version, model, chip, chips, load_kind, load_value, metric, stat, unit)"
     " SELECT 'simulated/measured' AS class, m.workload, m.workload_version, m.model, m.chip, m.chips,"
     " iif(m.load_value>0,printf('%s:%g',m.load_kind,m.load_value),m.load_kind) AS load, m.metric, m.stat, m.unit,"
     " s.mean AS simulated, m.mean AS measured, s.mean/m.mean-1 AS relative_error, s.n AS simulated_runs, m.n AS measured_runs,"
     " min(s.signatures,m.signatures) AS signatures FROM v m JOIN v s USING(workload, workload_version, chip, chips, load_kind,"
     " load_value, metric, stat, unit) WHERE m.model IS s.model AND m.class='measured' AND s.class='simulated' AND m.mean<>0"
     " ORDER BY abs(relative_error) DESC"},

    {"training", "training runs: step time, token rate and utilisation",
     {P_WORKLOAD, P_CLASS, P_CHIP},
     "SELECT class, workload, model, system, chips, max(iif(metric='step_ns' AND stat='p50', value, NULL))/1e6 AS step_p50_ms,"
     " max(iif(metric='step_ns' AND stat='p99', value, NULL))/1e6 AS step_p99_ms,"
     " max(iif(metric='step_tokens_per_s', value, NULL)) AS step_tokens_per_s,"
     " max(iif(metric='step_tokens_per_s_per_chip', value, NULL)) AS step_tokens_per_s_per_chip,"
     " max(iif(metric='mfu', value, NULL)) AS mfu, started, " PROOF " FROM v_result"
     " WHERE workload_kind='training' AND " ANY("workload") " AND " ANY("class") " AND " ANY("chip")
     " GROUP BY run_id ORDER BY workload, system, run_id DESC"},

    {"trend", "one metric over time",
     {{"metric", "output_tokens_per_s", "its name"}, {"stat", "", "its statistic"}, P_WORKLOAD, P_CHIP, P_CLASS},
     "SELECT started, class, workload, system, " LOAD ", metric, stat, value, unit, n, ci_lo, ci_hi, harness_version,"
     " backend_version, " PROOF " FROM v_result WHERE metric=:metric AND " ANY("stat") " AND " ANY("workload") " AND "
     ANY("chip") " AND " ANY("class") " ORDER BY workload, system, stat, started_ns"},

    {"versions-effect", "a metric by harness and backend version",
     {{"metric", "output_tokens_per_s", "its name"}, {"stat", "", "its statistic"}, P_WORKLOAD, P_CHIP, P_CLASS},
     "SELECT class, workload, system, " LOAD ", metric, stat, unit, harness_version, backend, backend_version,"
     " count(*) AS n, avg(value) AS mean, min(value) AS min, max(value) AS max, min(signatures) AS signatures"
     " FROM v_result WHERE metric=:metric AND " ANY("stat") " AND " ANY("workload") " AND " ANY("chip") " AND " ANY("class")
     " GROUP BY class, workload, system, load_kind, load_value, metric, stat, unit, harness_version, backend, backend_version"
     " ORDER BY workload, system, load_kind, load_value, min(started_ns)"},

    {"wide-intervals", "figures whose confidence interval is wider than a share of the value",
     {{"above", "0.05", "width of the interval over the value"}, P_WORKLOAD, {"metric", "", "name, * allowed"}},
     "SELECT class, workload, system, " LOAD ", metric, stat, value, unit, n, ci_level, ci_lo, ci_hi,"
     " (ci_hi-ci_lo)/abs(value) AS relative_width, " PROOF " FROM v_result"
     " WHERE ci_level IS NOT NULL AND value<>0 AND (ci_hi-ci_lo)/abs(value)>:above AND " ANY("workload") " AND " ANY("metric")
     " ORDER BY relative_width DESC"},
    {0},
};
// clang-format on
