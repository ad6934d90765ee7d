-- Puts of 256 bytes at random for wrk: a long run, its tail, and what others feel. Environment: ROWS (default a million);
-- HOT=1 sends 80 % of the puts to a fifth of the rows; KEYED is the share of puts with an idempotency key, of 1.
-- wrk -t1 -c64 -d100s --latency -s loadtest/puts.lua http://127.0.0.1:8080
local rows = tonumber(os.getenv("ROWS") or "1000000")
local is_hot = os.getenv("HOT") == "1"
local keyed = tonumber(os.getenv("KEYED") or "0")
local value = string.rep("x", 256)
local run = os.time()
local sent = 0

function init()
  math.randomseed(run)
end

function request()
  local most = rows
  if is_hot and math.random() < 0.8 then most = math.floor(rows / 5) end
  local row = math.random(most)
  local path = string.format("/v1/ns/demo/kv/p%06d/r%03d", math.floor(row / 100), row % 100)
  local headers = nil
  if math.random() < keyed then
    sent = sent + 1
    headers = {["Idempotency-Key"] = run .. "-" .. sent}
  end
  return wrk.format("PUT", path, headers, value)
end

function done(_, latency)
  local ms = function(percent) return latency:percentile(percent) / 1000 end
  print(string.format("p99 %.1f, p99.9 %.1f, longest %.1f ms", ms(99), ms(99.9), latency.max / 1000))
end
