/* settings.c: see settings.h. Start-up only. */
#include "parts/settings.h"

#include <string.h>

#include "base/error.h"
#include "base/limits.h"

int lm_setting_in_range(const char *name, uint64_t found, uint64_t least, uint64_t most) {
    if (found >= least && found <= most) return 0;
    return lm_error(LUMEN_E_INVALID, "%s: expected %llu to %llu, found %llu", name,
                    (unsigned long long)least, (unsigned long long)most, (unsigned long long)found);
}

/* Combinations that make no sense; Python reports them all at once, with their places. */
static int check_queue(const lumen_config *config) {
    uint32_t type = config->queue_type;
    if (type == LUMEN_QUEUE_SPSC && (config->thread_count > 1 || config->io_threads > 1)) {
        return lm_error(LUMEN_E_INVALID,
                        "engine.queue_type spsc: expected one worker and one I/O "
                        "thread, found %u and %u",
                        config->thread_count, config->io_threads);
    }
    if (type == LUMEN_QUEUE_BATCHED && config->batch_size < 2) {
        return lm_error(LUMEN_E_INVALID,
                        "engine.queue_type batched: expected engine.batch_size of "
                        "at least 2, found %u",
                        config->batch_size);
    }
    return lm_setting_in_range("engine.queue_type", type, LUMEN_QUEUE_MPMC, LUMEN_QUEUE_INLINE);
}

int lm_setting_rate(const char *name, double rate, uint32_t burst) {
    if (rate == 0.0) return 0;
    if (!(rate >= LM_RATE_MIN && rate <= LM_RATE_MAX)) {
        return lm_error(LUMEN_E_INVALID, "%s: expected 0 (none) or %g to %g a second, found %g",
                        name, LM_RATE_MIN, LM_RATE_MAX, rate);
    }
    if (burst == 0)
        return lm_error(LUMEN_E_INVALID, "%s: expected a burst of at least 1, found 0", name);
    return 0;
}

static int check_limits(const lumen_config *config) {
    int code = lm_setting_rate("server.rate", config->rate, config->burst);
    if (!code)
        code = lm_setting_in_range("server.overload", config->overload, LUMEN_OVERLOAD_REFUSE,
                                   LUMEN_OVERLOAD_WAIT);
    if (!code) code = lm_setting_in_range("server.hosts", config->host_count, 0, LUMEN_HOSTS_MAX);
    for (uint32_t h = 0; !code && h < config->host_count; h++) {
        if (strlen(config->hosts[h]) >= LM_HOST_NAME_BYTES_MAX)
            code = lm_error(LUMEN_E_INVALID, "server.hosts: expected names below %d bytes",
                            LM_HOST_NAME_BYTES_MAX);
    }
    return code;
}

int lm_settings_check(const lumen_config *config) {
    if (config->abi_version != LUMEN_ABI_VERSION) {
        return lm_error(LUMEN_E_INVALID, "lumen_config.abi_version: expected %u, found %u",
                        LUMEN_ABI_VERSION, config->abi_version);
    }
    if (!config->host || !config->ort_library_path)
        return lm_error(LUMEN_E_INVALID, "lumen_config: host and ort_library_path must be set");
    if (strlen(config->host) >= LM_HOST_BYTES_MAX) {
        return lm_error(LUMEN_E_INVALID,
                        "server.host: expected an IPv4 or IPv6 address, found '%.80s'",
                        config->host);
    }
    if (config->unix_path && !*config->unix_path)
        return lm_error(LUMEN_E_INVALID, "server.unix_socket: expected a path, found none");
    if (config->unix_path && strlen(config->unix_path) >= LM_UNIX_PATH_BYTES_MAX) {
        return lm_error(LUMEN_E_INVALID,
                        "server.unix_socket: expected a path of at most %d bytes, found %zu",
                        LM_UNIX_PATH_BYTES_MAX - 1, strlen(config->unix_path));
    }
    int code = lm_setting_in_range("server.port", config->port, 0, 65535);
    if (!code) code = lm_setting_in_range("server.unix_socket_mode", config->unix_mode, 0, 0777);
    if (!code)
        code =
            lm_setting_in_range("server.io_threads", config->io_threads, 0, LUMEN_IO_THREADS_MAX);
    if (!code)
        code = lm_setting_in_range("server.max_connections", config->max_connections, 1,
                                   LM_CONNECTIONS_MAX);
    if (!code)
        code =
            lm_setting_in_range("engine.thread_count", config->thread_count, 0, LUMEN_WORKERS_MAX);
    if (!code)
        code = lm_setting_in_range("server.max_request_bytes", config->max_request_bytes, 1,
                                   UINT32_MAX);
    if (!code)
        code = lm_setting_in_range("engine.queue_capacity", config->queue_capacity, 2,
                                   LM_SLOTS_MAX / 2);
    if (!code) code = lm_setting_in_range("engine.batch_size", config->batch_size, 1, LM_BATCH_MAX);
    if (!code) code = check_queue(config);
    if (!code)
        code = lm_setting_in_range("engine.allocator_type", config->allocator_type,
                                   LUMEN_ALLOCATOR_ARENA, LUMEN_ALLOCATOR_STANDARD);
    if (!code)
        code =
            lm_setting_in_range("engine.idle", config->idle, LUMEN_IDLE_ADAPTIVE, LUMEN_IDLE_PARK);
    if (!code)
        code = lm_setting_in_range("server.io_backend", config->io_backend, LUMEN_IO_AUTO,
                                   LUMEN_IO_EPOLL);
    if (!code) code = check_limits(config);
    if (!code && (config->queue_capacity & (config->queue_capacity - 1))) {
        code = lm_error(LUMEN_E_INVALID, "engine.queue_capacity: expected a power of two, found %u",
                        config->queue_capacity);
    }
    return code;
}
