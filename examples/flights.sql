-- Every flight that left New York City in 2013 (and those that should have), with its airline, its aircraft,
-- the airports and the weather. docs/workloads.md tells where the rows come from and how they are corrected.

CREATE TABLE airlines (
  carrier VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  PRIMARY KEY (carrier)
);

CREATE TABLE airports (
  faa VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  lat DOUBLE NOT NULL,
  lon DOUBLE NOT NULL,
  alt INTEGER NOT NULL,   -- feet
  tz INTEGER NOT NULL,    -- hours from UTC
  dst VARCHAR NOT NULL,
  tzone VARCHAR,
  PRIMARY KEY (faa)
);

CREATE TABLE planes (
  tailnum VARCHAR NOT NULL,
  year INTEGER,           -- of manufacture
  type VARCHAR NOT NULL,
  manufacturer VARCHAR NOT NULL,
  model VARCHAR NOT NULL,
  engines INTEGER NOT NULL,
  seats INTEGER NOT NULL,
  speed INTEGER,          -- cruising, miles per hour
  engine VARCHAR NOT NULL,
  PRIMARY KEY (tailnum)
);

-- The hour is local. On 3 November, when summer time ends, hour 1 comes twice at each of the three airports:
-- the second of the two has a key that is taken, and goes to the quarantine.
CREATE TABLE weather (
  origin VARCHAR NOT NULL,
  year INTEGER NOT NULL,
  month INTEGER NOT NULL,
  day INTEGER NOT NULL,
  hour INTEGER NOT NULL,
  temp DOUBLE,            -- °F
  dewp DOUBLE,            -- °F
  humid DOUBLE,           -- per cent
  wind_dir DOUBLE,        -- degrees
  wind_speed DOUBLE,      -- miles per hour
  wind_gust DOUBLE,       -- miles per hour
  precip DOUBLE NOT NULL, -- inches
  pressure DOUBLE,        -- millibars
  visib DOUBLE NOT NULL,  -- miles
  time_hour TIMESTAMP NOT NULL, -- UTC
  PRIMARY KEY (origin, year, month, day, hour),
  FOREIGN KEY (origin) REFERENCES airports (faa)
);

-- An airline's flight number leaves an airport at most once a day, so the natural key is unique.
-- One tail number in six is not in planes, and four destinations are not in airports: no foreign keys there.
CREATE TABLE flights (
  year INTEGER NOT NULL,
  month INTEGER NOT NULL,
  day INTEGER NOT NULL,
  dep_time INTEGER,       -- local, HHMM; NULL while it is not known
  sched_dep_time INTEGER NOT NULL,
  dep_delay INTEGER,      -- minutes, negative when early
  arr_time INTEGER,
  sched_arr_time INTEGER NOT NULL,
  arr_delay INTEGER,      -- NULL for a diverted flight
  carrier VARCHAR NOT NULL,
  flight INTEGER NOT NULL,
  tailnum VARCHAR,
  origin VARCHAR NOT NULL,
  dest VARCHAR NOT NULL,
  air_time INTEGER,       -- minutes
  distance INTEGER NOT NULL, -- miles
  hour INTEGER NOT NULL,  -- of the scheduled departure
  minute INTEGER NOT NULL,
  time_hour TIMESTAMP NOT NULL, -- UTC, joins weather
  PRIMARY KEY (year, month, day, carrier, flight, origin),
  FOREIGN KEY (carrier) REFERENCES airlines (carrier),
  FOREIGN KEY (origin) REFERENCES airports (faa)
);

-- A flight that never left moves from flights to here.
CREATE TABLE cancellations (
  year INTEGER NOT NULL,
  month INTEGER NOT NULL,
  day INTEGER NOT NULL,
  sched_dep_time INTEGER NOT NULL,
  sched_arr_time INTEGER NOT NULL,
  carrier VARCHAR NOT NULL,
  flight INTEGER NOT NULL,
  tailnum VARCHAR,
  origin VARCHAR NOT NULL,
  dest VARCHAR NOT NULL,
  distance INTEGER NOT NULL,
  hour INTEGER NOT NULL,
  minute INTEGER NOT NULL,
  time_hour TIMESTAMP NOT NULL,
  PRIMARY KEY (year, month, day, carrier, flight, origin),
  FOREIGN KEY (carrier) REFERENCES airlines (carrier),
  FOREIGN KEY (origin) REFERENCES airports (faa)
);

-- How late is each airline, month by month?
CREATE VIEW airline_months AS
SELECT a.name AS airline, f.month, COUNT(*) AS flights, COUNT(f.arr_delay) AS arrived,
       AVG(f.dep_delay) AS departure_delay, AVG(f.arr_delay) AS arrival_delay, SUM(f.distance) AS miles
FROM flights f JOIN airlines a ON f.carrier = a.carrier
GROUP BY a.name, f.month
ORDER BY airline, month;

-- How many arrive within fifteen minutes of the schedule? (A diverted flight has no arrival and is not counted.)
CREATE VIEW on_time AS
SELECT origin, month, COUNT(*) AS flights,
       SUM(CASE WHEN arr_delay <= 15 THEN 1 ELSE 0 END) AS on_time,
       AVG(CASE WHEN arr_delay <= 15 THEN 100 WHEN arr_delay > 15 THEN 0 END) AS on_time_percent,
       SUM(CASE WHEN dep_delay > 60 THEN 1 ELSE 0 END) AS over_an_hour_late
FROM flights
GROUP BY origin, month
ORDER BY origin, month;

-- Delays build up over the day.
CREATE VIEW hours AS
SELECT origin, hour, COUNT(*) AS flights, AVG(dep_delay) AS departure_delay, AVG(arr_delay) AS arrival_delay
FROM flights
GROUP BY origin, hour
ORDER BY origin, hour;

-- What does the weather do to departures?
CREATE VIEW weather_delays AS
SELECT o.name AS airport,
       CASE WHEN w.visib < 2 THEN 'fog'
            WHEN w.precip > 0 AND w.temp < 33 THEN 'snow'
            WHEN w.precip > 0 THEN 'rain'
            WHEN w.wind_speed >= 20 THEN 'wind'
            ELSE 'fair' END AS conditions,
       COUNT(*) AS flights, AVG(f.dep_delay) AS departure_delay, AVG(f.arr_delay) AS arrival_delay,
       AVG(w.visib) AS visibility
FROM flights f
JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
JOIN airports o ON f.origin = o.faa
GROUP BY airport, conditions
ORDER BY airport, conditions;

-- Which aircraft does each airline fly from New York? Makers are written in several ways.
CREATE VIEW manufacturers AS
SELECT CASE WHEN p.manufacturer LIKE 'AIRBUS%' THEN 'AIRBUS'
            WHEN p.manufacturer LIKE 'MCDONNELL%' THEN 'MCDONNELL DOUGLAS'
            ELSE p.manufacturer END AS manufacturer,
       a.name AS airline, COUNT(*) AS flights, SUM(p.seats) AS seats, AVG(f.arr_delay) AS arrival_delay
FROM flights f
JOIN planes p ON f.tailnum = p.tailnum
JOIN airlines a ON f.carrier = a.carrier
GROUP BY 1, 2
ORDER BY flights DESC, manufacturer, airline;

-- Are old aircraft later? The age counts in steps of five years; NULL where the year of manufacture is unknown.
CREATE VIEW aircraft_ages AS
SELECT (f.year - p.year) // 5 * 5 AS age_from, COUNT(*) AS flights, AVG(f.dep_delay) AS departure_delay,
       AVG(f.air_time) AS air_time
FROM flights f JOIN planes p ON f.tailnum = p.tailnum
GROUP BY (f.year - p.year) // 5 * 5
ORDER BY age_from;

-- Where do people fly, and how long does it take?
CREATE VIEW routes AS
SELECT o.name AS origin, d.name AS destination, COUNT(*) AS flights, AVG(f.air_time) AS air_time,
       AVG(f.arr_delay) AS arrival_delay
FROM flights f
JOIN airports o ON f.origin = o.faa
JOIN airports d ON f.dest = d.faa
GROUP BY o.name, d.name
ORDER BY flights DESC, origin, destination;

-- The same aircraft leaves an hour late twice on one day: how often, by the airline of the second flight?
CREATE VIEW late_again AS
SELECT al.name AS airline, COUNT(*) AS pairs, AVG(a.dep_delay) AS earlier_delay, AVG(b.dep_delay) AS later_delay
FROM flights a, flights b, airlines al
WHERE a.tailnum = b.tailnum AND a.year = b.year AND a.month = b.month AND a.day = b.day
  AND a.sched_dep_time < b.sched_dep_time AND a.dep_delay >= 60 AND b.dep_delay >= 60
  AND b.carrier = al.carrier
GROUP BY al.name
ORDER BY pairs DESC, airline;

-- Thanksgiving and Christmas, day by day.
CREATE VIEW holidays AS
SELECT f.month, f.day, o.name AS airport, COUNT(*) AS flights, AVG(f.dep_delay) AS departure_delay
FROM flights f JOIN airports o ON f.origin = o.faa
WHERE (f.month = 11 AND f.day BETWEEN 26 AND 30) OR (f.month = 12 AND f.day IN (20, 21, 22, 23, 26, 27))
GROUP BY f.month, f.day, o.name
ORDER BY month, day, airport;

-- Who cancels, and where?
CREATE VIEW cancelled AS
SELECT a.name AS airline, o.name AS airport, COUNT(*) AS flights, COUNT(c.tailnum) AS with_aircraft,
       SUM(c.distance) AS miles
FROM cancellations c
JOIN airlines a ON c.carrier = a.carrier
JOIN airports o ON c.origin = o.faa
GROUP BY a.name, o.name
ORDER BY flights DESC, airline, airport;

-- How hard did the wind blow when flights were cancelled?
CREATE VIEW cancelled_weather AS
SELECT w.month, COUNT(*) AS flights, AVG(w.wind_speed) AS wind_speed, SUM(w.precip) AS precipitation
FROM cancellations c JOIN weather w ON c.origin = w.origin AND c.time_hour = w.time_hour
GROUP BY w.month
ORDER BY month;

-- The flights that left or came more than eight hours late, one by one.
CREATE VIEW worst AS
SELECT a.name AS airline, f.flight, f.origin, f.dest, f.month, f.day, f.dep_delay, f.arr_delay
FROM flights f JOIN airlines a ON f.carrier = a.carrier
WHERE f.dep_delay > 480 OR f.arr_delay > 480
ORDER BY dep_delay DESC, flight;
