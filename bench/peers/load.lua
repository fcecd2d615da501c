-- For wrk: sends one request over and over, and prints what came of it as a line of JSON.
-- Run by peers/wrk.py, which says in the environment which body, if any, and which headers.
local path = os.getenv("LUMEN_BODY")
if path ~= "" then
    local file = assert(io.open(path, "rb"))
    wrk.method = "POST"
    wrk.body = file:read("*a")
    file:close()
end
for name, value in string.gmatch(os.getenv("LUMEN_HEADERS"), "([^=\n]+)=([^\n]*)") do
    wrk.headers[name] = value
end

function done(summary, latency, requests)
    local failed = summary.errors
    io.write(string.format(
        'RESULT {"requests": %d, "seconds": %.6f, "errors": %d, "mean": %.1f, "p50": %.1f, ' ..
        '"p99": %.1f, "p999": %.1f}\n',
        summary.requests, summary.duration / 1e6,
        failed.connect + failed.read + failed.write + failed.status + failed.timeout,
        latency.mean, latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
