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

#define CHECK_SETTING(section, type, name, least, most) \
    if (!code) code = lm_setting_in_range(#section "." #name, config->name, least, most);
#define CHECK_NOTHING(type, name)
static int check_numbers(const lumen_config *config) {
    int code = 0;
    LUMEN_CONFIG_FIELDS(CHECK_SETTING, CHECK_NOTHING)
    return code;
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
    if (config->queue_capacity & (config->queue_capacity - 1)) {
        return lm_error(LUMEN_E_INVALID, "engine.queue_capacity: expected a power of two, found %u",
                        config->queue_capacity);
    }
    return 0;
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

static int check_access(const lumen_config *config) {
    int code = lm_setting_rate("server.rate", config->rate, config->burst);
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
    if (config->name && (!*config->name || strlen(config->name) >= LM_SERVER_NAME_BYTES_MAX))
        return lm_error(LUMEN_E_INVALID, "server.name: expected 1 to %d bytes, found %zu",
                        LM_SERVER_NAME_BYTES_MAX - 1, strlen(config->name));
    if (config->unix_socket && !*config->unix_socket)
        return lm_error(LUMEN_E_INVALID, "server.unix_socket: expected a path, found none");
    if (config->unix_socket && strlen(config->unix_socket) >= LM_UNIX_PATH_BYTES_MAX) {
        return lm_error(LUMEN_E_INVALID,
                        "server.unix_socket: expected a path of at most %d bytes, found %zu",
                        LM_UNIX_PATH_BYTES_MAX - 1, strlen(config->unix_socket));
    }
    if (config->cores && strlen(config->cores) >= LM_CORES_BYTES_MAX)
        return lm_error(LUMEN_E_INVALID, "engine.cores: expected at most %d bytes, found %zu",
                        LM_CORES_BYTES_MAX - 1, strlen(config->cores));
    int code = check_numbers(config);
    if (!code) code = check_queue(config);
    if (!code) code = check_access(config);
    return code;
}
