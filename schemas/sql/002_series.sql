-- Time series read beside a run: a server's own /metrics, a telemetry file. Description:
-- schemas/database.md. Part of the signed side: the record's subject raw/series.assayseries covers them.

CREATE TABLE series_source(
  run_id INTEGER NOT NULL REFERENCES run, source INTEGER NOT NULL CHECK(source>=0),
  kind TEXT NOT NULL CHECK(kind IN('prometheus','telemetry')), location TEXT NOT NULL,
  PRIMARY KEY(run_id,source)) STRICT, WITHOUT ROWID;

-- One visit of a source. t_ns: of the run's clock, as in the event log.
CREATE TABLE series_round(
  run_id INTEGER NOT NULL REFERENCES run, source INTEGER NOT NULL, round INTEGER NOT NULL CHECK(round>=0),
  t_ns INTEGER NOT NULL, took_ns INTEGER NOT NULL CHECK(took_ns>=0), bytes INTEGER NOT NULL CHECK(bytes>=0),
  ok INTEGER NOT NULL CHECK(ok IN(0,1)), PRIMARY KEY(run_id,source,round)) STRICT, WITHOUT ROWID;

-- A metric's name with one set of labels. labels: a JSON object of texts, names ascending.
CREATE TABLE series(
  run_id INTEGER NOT NULL REFERENCES run, series INTEGER NOT NULL CHECK(series>=0),
  source INTEGER NOT NULL, name TEXT NOT NULL, labels TEXT NOT NULL CHECK(labels GLOB '{*}'),
  kind TEXT NOT NULL CHECK(kind IN('untyped','counter','gauge','histogram','summary','other')),
  PRIMARY KEY(run_id,series)) STRICT, WITHOUT ROWID;

-- Changes only: at a round without a row the value is that of the last row before. NULL: not shown any
-- more, or not a number. Of a telemetry source each reading has a row.
CREATE TABLE series_sample(
  run_id INTEGER NOT NULL REFERENCES run, series INTEGER NOT NULL, round INTEGER NOT NULL, value REAL,
  PRIMARY KEY(run_id,series,round)) STRICT, WITHOUT ROWID;

-- One row a change of a series, with its time.
CREATE VIEW v_series AS
  SELECT r.uuid AS run, q.kind AS source_kind, q.location, s.name, s.labels, s.kind, w.t_ns, p.value,
    p.run_id, p.series, s.source, p.round
  FROM run r JOIN series s USING(run_id)
    JOIN series_source q ON q.run_id=s.run_id AND q.source=s.source
    JOIN series_sample p ON p.run_id=s.run_id AND p.series=s.series
    JOIN series_round w ON w.run_id=s.run_id AND w.source=s.source AND w.round=p.round;
