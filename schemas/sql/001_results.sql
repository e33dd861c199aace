-- The results database, version 1. Description and promise: schemas/database.md.
-- The signed side is append-only: the migration code adds three guard triggers to every table below
-- except those of "the mutable side" (results/store_migrate.c), so none is written here by hand.

-- Content-addressed JSON: every definition that a record names by digest, as canonical bytes.
CREATE TABLE document(
  digest BLOB PRIMARY KEY CHECK(length(digest)=32),
  doc TEXT NOT NULL CHECK(doc<>'')) STRICT;

CREATE TABLE system(
  system_id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE REFERENCES document,
  name TEXT NOT NULL) STRICT;

CREATE TABLE workload(
  workload_id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE REFERENCES document,
  name TEXT NOT NULL, version TEXT NOT NULL, kind TEXT NOT NULL, model TEXT) STRICT;

CREATE TABLE rule_pack(
  rule_pack_id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE REFERENCES document,
  name TEXT NOT NULL, version TEXT NOT NULL) STRICT;

CREATE TABLE software(
  software_id INTEGER PRIMARY KEY, kind TEXT NOT NULL CHECK(kind IN('harness','backend')),
  name TEXT NOT NULL, version TEXT NOT NULL,
  digest BLOB NOT NULL CHECK(length(digest) IN(0,32)), -- of the executable; empty: part of the harness
  UNIQUE(kind,name,version,digest)) STRICT;

CREATE TABLE campaign(
  campaign_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE CHECK(name<>'')) STRICT;

-- A started run. Written before any load; never updated. Without a run_end it is open.
CREATE TABLE run(
  run_id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE CHECK(length(uuid)=36),
  campaign_id INTEGER NOT NULL REFERENCES campaign, attempt INTEGER NOT NULL CHECK(attempt>0),
  workload_id INTEGER NOT NULL REFERENCES workload,
  workload_file_digest BLOB NOT NULL REFERENCES document, -- as given, before defaults and overrides
  system_id INTEGER NOT NULL REFERENCES system,
  rule_pack_id INTEGER NOT NULL REFERENCES rule_pack,
  environment_digest BLOB NOT NULL REFERENCES document,
  harness_id INTEGER NOT NULL REFERENCES software,
  backend_id INTEGER NOT NULL REFERENCES software,
  backend_digest BLOB NOT NULL REFERENCES document, -- with its configuration
  class TEXT NOT NULL CHECK(class IN('measured','simulated','emulated','projected','none')),
  chip TEXT NOT NULL, chips INTEGER NOT NULL CHECK(chips>=0), -- '' and 0: unknown
  mode TEXT NOT NULL CHECK(mode IN('performance','accuracy','compliance','dryrun')),
  load_kind TEXT NOT NULL CHECK(load_kind<>''), load_value REAL NOT NULL,
  seed TEXT NOT NULL CHECK(seed GLOB '[0-9]*' AND seed NOT GLOB '*[^0-9]*'),
  started_ns INTEGER NOT NULL, UNIQUE(campaign_id,attempt)) STRICT;

-- How a run ended, and the counts of its measured window.
CREATE TABLE run_end(
  run_id INTEGER PRIMARY KEY REFERENCES run, finished_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL CHECK(duration_ns>=0), -- monotonic
  verdict TEXT NOT NULL CHECK(verdict IN('VALID','INVALID','ABORTED')),
  reason TEXT, -- of ABORTED
  payload_sha256 BLOB UNIQUE REFERENCES envelope,
  issued INTEGER, completed INTEGER, failed INTEGER, input_tokens INTEGER, output_tokens INTEGER,
  CHECK((verdict='ABORTED')=(reason IS NOT NULL)),
  CHECK(verdict='ABORTED' OR payload_sha256 IS NOT NULL)) STRICT;

CREATE TABLE invalid_reason(
  run_id INTEGER NOT NULL REFERENCES run_end, code TEXT NOT NULL, PRIMARY KEY(run_id,code)) STRICT, WITHOUT ROWID;

-- One row a rule of the pack, in the pack's order.
CREATE TABLE verdict(
  run_id INTEGER NOT NULL REFERENCES run_end, position INTEGER NOT NULL CHECK(position>=0),
  rule TEXT NOT NULL, ok INTEGER NOT NULL CHECK(ok IN(0,1)), want TEXT NOT NULL, got TEXT NOT NULL,
  reason_code TEXT NOT NULL, PRIMARY KEY(run_id,position)) STRICT, WITHOUT ROWID;

CREATE TABLE metric_def(
  metric_id INTEGER PRIMARY KEY, name TEXT NOT NULL, stat TEXT NOT NULL, unit TEXT NOT NULL,
  better TEXT NOT NULL CHECK(better IN('lower','higher')), description TEXT NOT NULL,
  UNIQUE(name,stat,unit,better)) STRICT;

CREATE TABLE metric(
  run_id INTEGER NOT NULL REFERENCES run_end, metric_id INTEGER NOT NULL REFERENCES metric_def,
  value REAL NOT NULL CHECK(abs(value)<=1.7976931348623157e308), n INTEGER NOT NULL CHECK(n>=0),
  ci_level REAL CHECK(ci_level>0 AND ci_level<1), ci_lo REAL, ci_hi REAL,
  CHECK((ci_lo IS NULL)=(ci_level IS NULL) AND (ci_hi IS NULL)=(ci_level IS NULL)),
  CHECK(ci_lo IS NULL OR ci_lo<=ci_hi),
  PRIMARY KEY(run_id,metric_id)) STRICT, WITHOUT ROWID;

-- The signed payloads: the truth that the tables above index.
CREATE TABLE envelope(
  payload_sha256 BLOB PRIMARY KEY CHECK(length(payload_sha256)=32),
  run_id INTEGER NOT NULL UNIQUE REFERENCES run,
  payload_type TEXT NOT NULL, payload BLOB NOT NULL) STRICT;

CREATE TABLE key(
  keyid TEXT PRIMARY KEY CHECK(keyid GLOB 'sha256:*' AND length(keyid)=71),
  public BLOB NOT NULL UNIQUE CHECK(length(public)=32), owner TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE signature(
  payload_sha256 BLOB NOT NULL REFERENCES envelope, keyid TEXT NOT NULL REFERENCES key,
  sig BLOB NOT NULL CHECK(length(sig)=64), added_ns INTEGER NOT NULL,
  PRIMARY KEY(payload_sha256,keyid)) STRICT, WITHOUT ROWID;

-- The subjects of the record: what its digests cover.
CREATE TABLE artifact(
  run_id INTEGER NOT NULL REFERENCES run_end, name TEXT NOT NULL,
  sha256 BLOB NOT NULL CHECK(length(sha256)=32), PRIMARY KEY(run_id,name)) STRICT, WITHOUT ROWID;

-- The event log: a block of at most 4096 events a row, as schemas/event-log.md defines its bytes.
CREATE TABLE chunk(
  run_id INTEGER NOT NULL REFERENCES run, thread INTEGER NOT NULL CHECK(thread>=0),
  sequence INTEGER NOT NULL CHECK(sequence>=0), events INTEGER NOT NULL CHECK(events>0),
  first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL CHECK(last_ns>=first_ns),
  sha256 BLOB NOT NULL CHECK(length(sha256)=32),
  data BLOB NOT NULL CHECK(length(data)>0), PRIMARY KEY(run_id,thread,sequence)) STRICT;

-- The run register: canonical JSON, dense, hash-chained; the leaves of a Merkle tree.
-- edge: the tree's right edge after this entry (hashes of its complete subtrees, largest first).
CREATE TABLE register_entry(
  seq INTEGER PRIMARY KEY CHECK(seq>=0), kind TEXT NOT NULL, run_id INTEGER REFERENCES run,
  at_ns INTEGER NOT NULL, entry BLOB NOT NULL, leaf BLOB NOT NULL CHECK(length(leaf)=32),
  chain BLOB NOT NULL UNIQUE CHECK(length(chain)=32), edge BLOB NOT NULL) STRICT;
CREATE TRIGGER register_dense BEFORE INSERT ON register_entry
  WHEN NEW.seq<>(SELECT coalesce(max(seq)+1,0) FROM register_entry)
  BEGIN SELECT raise(ABORT,'register: seq must be dense'); END;

-- Signed checkpoints of the register, kept so that a later state can be shown to extend them.
CREATE TABLE checkpoint(
  origin TEXT NOT NULL, size INTEGER NOT NULL CHECK(size>0), root BLOB NOT NULL CHECK(length(root)=32),
  note TEXT NOT NULL, PRIMARY KEY(origin,size)) STRICT, WITHOUT ROWID;

-- The mutable side: never signed, never referenced by the tables above.
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- Who executes an open run; with the locks of the -lease file it tells a crash from a long run.
CREATE TABLE lease(
  run_id INTEGER PRIMARY KEY REFERENCES run, pid INTEGER NOT NULL, boot_id TEXT NOT NULL,
  process_start INTEGER NOT NULL) STRICT; -- field 22 of /proc/PID/stat
CREATE TABLE price(
  chip TEXT NOT NULL CHECK(chip<>''), valid_from TEXT NOT NULL CHECK(valid_from IS date(valid_from)),
  usd_per_chip_hour REAL NOT NULL CHECK(usd_per_chip_hour>=0 AND usd_per_chip_hour<1e9),
  basis TEXT NOT NULL CHECK(basis IN('list','contract','tco-model')), source TEXT NOT NULL,
  PRIMARY KEY(chip,basis,valid_from)) STRICT, WITHOUT ROWID;
CREATE TABLE tag(
  run_id INTEGER NOT NULL REFERENCES run, tag TEXT NOT NULL CHECK(tag<>''),
  PRIMARY KEY(run_id,tag)) STRICT, WITHOUT ROWID;

CREATE INDEX run_workload ON run(workload_id,started_ns);
CREATE INDEX run_system ON run(system_id);
CREATE INDEX metric_value ON metric(metric_id,value);
CREATE INDEX register_run ON register_entry(run_id);
CREATE INDEX signature_key ON signature(keyid);

-- Views: the promise to readers. Columns are only ever added. Counts are scalar subqueries, so that a
-- query pays only for the columns it names. CROSS JOIN fixes the order run first, then lookups by key:
-- left alone, the planner begins with the product of the small tables.
CREATE VIEW v_campaign AS
  SELECT c.name AS campaign, count(*) AS started, coalesce(sum(e.verdict='VALID'),0) AS valid,
    coalesce(sum(e.verdict='INVALID'),0) AS invalid, coalesce(sum(e.verdict='ABORTED'),0) AS aborted,
    sum(e.run_id IS NULL) AS open
  FROM campaign c JOIN run r USING(campaign_id) LEFT JOIN run_end e USING(run_id)
  GROUP BY c.campaign_id;

-- One row a run, whatever became of it.
CREATE VIEW v_run AS
  SELECT r.run_id, r.uuid AS run, coalesce(e.verdict,'OPEN') AS verdict, r.class, r.chip, r.chips,
    s.name AS system, w.name AS workload, w.version AS workload_version, w.kind AS workload_kind,
    w.model, p.name AS rules, p.version AS rules_version, b.name AS backend, b.version AS backend_version,
    h.version AS harness_version, r.mode, r.load_kind, r.load_value, r.seed, c.name AS campaign, r.attempt,
    (SELECT count(*) FROM run x WHERE x.campaign_id=r.campaign_id) AS started_runs,
    (SELECT count(*) FROM run x JOIN run_end y USING(run_id)
      WHERE x.campaign_id=r.campaign_id AND y.verdict='VALID') AS valid_runs,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.started_ns/1000000000, 'unixepoch') AS started, r.started_ns,
    e.duration_ns, e.issued, e.completed, e.failed, e.input_tokens, e.output_tokens,
    coalesce(e.reason,(SELECT group_concat(code,' ') FROM invalid_reason i WHERE i.run_id=r.run_id)) AS reason,
    (SELECT count(*) FROM signature g WHERE g.payload_sha256=e.payload_sha256) AS signatures,
    (SELECT count(DISTINCT k.owner) FROM signature g JOIN key k USING(keyid)
      WHERE g.payload_sha256=e.payload_sha256) AS signer_owners,
    lower(hex(e.payload_sha256)) AS record_sha256, lower(hex(w.digest)) AS workload_sha256,
    lower(hex(s.digest)) AS system_sha256, lower(hex(p.digest)) AS rules_sha256,
    lower(hex(h.digest)) AS harness_sha256, r.campaign_id, r.workload_id, r.system_id
  FROM run r LEFT JOIN run_end e USING(run_id)
    CROSS JOIN workload w ON w.workload_id=r.workload_id CROSS JOIN system s ON s.system_id=r.system_id
    CROSS JOIN rule_pack p ON p.rule_pack_id=r.rule_pack_id CROSS JOIN software h ON h.software_id=r.harness_id
    CROSS JOIN software b ON b.software_id=r.backend_id CROSS JOIN campaign c ON c.campaign_id=r.campaign_id;

CREATE VIEW v_open_run AS SELECT * FROM v_run WHERE verdict='OPEN';

-- One row a published figure of a valid performance run.
CREATE VIEW v_result AS
  SELECT r.*, d.name AS metric, d.stat, m.value, d.unit, d.better, m.n, m.ci_level, m.ci_lo, m.ci_hi
  FROM v_run r CROSS JOIN metric m USING(run_id) JOIN metric_def d USING(metric_id)
  WHERE r.verdict='VALID' AND r.mode='performance';

-- One row a valid performance run, with the figures that planners ask for most: an operating point.
CREATE VIEW v_point AS
  SELECT r.*,
    (SELECT value FROM metric m WHERE m.run_id=r.run_id AND m.metric_id=(SELECT metric_id FROM metric_def WHERE name='requests_per_s' AND stat='value' AND unit='1/s')) AS requests_per_s,
    (SELECT value FROM metric m WHERE m.run_id=r.run_id AND m.metric_id=(SELECT metric_id FROM metric_def WHERE name='output_tokens_per_s' AND stat='value' AND unit='tok/s')) AS output_tokens_per_s,
    (SELECT value FROM metric m WHERE m.run_id=r.run_id AND m.metric_id=(SELECT metric_id FROM metric_def WHERE name='output_tokens_per_s_per_chip' AND stat='value' AND unit='tok/s')) AS output_tokens_per_s_per_chip,
    (SELECT value FROM metric m WHERE m.run_id=r.run_id AND m.metric_id=(SELECT metric_id FROM metric_def WHERE name='tokens_per_s_per_user' AND stat='p50' AND unit='tok/s')) AS tokens_per_s_per_user,
    (SELECT value FROM metric m WHERE m.run_id=r.run_id AND m.metric_id=(SELECT metric_id FROM metric_def WHERE name='ttft_ns' AND stat='p50' AND unit='ns'))/1e6 AS ttft_p50_ms,
    (SELECT value FROM metric m WHERE m.run_id=r.run_id AND m.metric_id=(SELECT metric_id FROM metric_def WHERE name='ttft_ns' AND stat='p99' AND unit='ns'))/1e6 AS ttft_p99_ms,
    (SELECT value FROM metric m WHERE m.run_id=r.run_id AND m.metric_id=(SELECT metric_id FROM metric_def WHERE name='tpot_ns' AND stat='p50' AND unit='ns'))/1e6 AS tpot_p50_ms,
    (SELECT value FROM metric m WHERE m.run_id=r.run_id AND m.metric_id=(SELECT metric_id FROM metric_def WHERE name='tpot_ns' AND stat='p99' AND unit='ns'))/1e6 AS tpot_p99_ms,
    (SELECT value FROM metric m WHERE m.run_id=r.run_id AND m.metric_id=(SELECT metric_id FROM metric_def WHERE name='e2e_ns' AND stat='p99' AND unit='ns'))/1e6 AS e2e_p99_ms,
    1.0*r.input_tokens/nullif(r.completed,0) AS mean_isl, 1.0*r.output_tokens/nullif(r.completed,0) AS mean_osl
  FROM v_run r WHERE r.verdict='VALID' AND r.mode='performance';

CREATE VIEW v_price_now AS
  SELECT chip, basis, usd_per_chip_hour, valid_from, source FROM
    (SELECT *, row_number() OVER(PARTITION BY chip,basis ORDER BY valid_from DESC) AS k
     FROM price WHERE valid_from<=date('now')) WHERE k=1;

-- Cost of output tokens at the newest price of the chip.
CREATE VIEW v_usd_per_mtok AS
  SELECT r.*, p.basis, p.usd_per_chip_hour, p.valid_from AS price_from,
    r.chips*p.usd_per_chip_hour*1e6/(nullif(r.output_tokens_per_s,0)*3600.0) AS usd_per_mtok
  FROM v_point r JOIN v_price_now p USING(chip) WHERE r.chips>0;

INSERT INTO meta VALUES('min_reader_version','1');
