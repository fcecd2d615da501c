/* http_heads.h: request heads, good and hostile, for test_http_parser.c. Numbers like 27 are rows
 * of the project's list of hostile inputs. */
#ifndef TESTS_C_HTTP_HEADS_H
#define TESTS_C_HTTP_HEADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT(text) (text), sizeof(text) - 1
#define HOST "Host: h\r\n"
#define GET "GET / HTTP/1.1\r\n" HOST
#define POST "POST / HTTP/1.1\r\n" HOST

static const struct good {
    const char *text;
    size_t count;
    const char *method;
    const char *target;
    uint8_t minor;
    bool keep_alive;
    bool chunked;
    bool expect;
    int64_t length; /* -1: none */
    int64_t json;
} goods[] = {
    {TEXT(GET "\r\n"), "GET", "/", 1, true, false, false, -1, -1},
    {TEXT("GET / HTTP/1.0\r\n\r\n"), "GET", "/", 0, false, false, false, -1, -1},
    {TEXT("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"), "GET", "/", 0, true, false, false,
     -1, -1},
    /* 28: one empty line before it */
    {TEXT("\r\n" GET "\r\n"), "GET", "/", 1, true, false, false, -1, -1},
    {TEXT("POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost:8000\r\n"
          "Content-Length: 602304\r\nInference-Header-Content-Length: 192\r\n\r\nbody"),
     "POST", "/v2/models/m/infer", 1, true, false, false, 602304, 192},
    /* 31: a body is consumed by its length; methods that are not served are well-formed */
    {TEXT(GET "Content-Length: 5\r\n\r\n"), "GET", "/", 1, true, false, false, 5, -1},
    {TEXT("get / HTTP/1.1\r\n" HOST "\r\n"), "get", "/", 1, true, false, false, -1, -1},
    {TEXT("CONNECT h:1 HTTP/1.1\r\n" HOST "\r\n"), "CONNECT", "h:1", 1, true, false, false, -1, -1},
    {TEXT("TRACE / HTTP/1.1\r\n" HOST "\r\n"), "TRACE", "/", 1, true, false, false, -1, -1},
    {TEXT("HEAD / HTTP/1.1\r\n" HOST "\r\n"), "HEAD", "/", 1, true, false, false, -1, -1},
    {TEXT("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"), "OPTIONS", "*", 1, true, false, false, -1, -1},
    {TEXT("ABCDEFGHIJKLMNOPQRSTUVWX / HTTP/1.1\r\n" HOST "\r\n"), "ABCDEFGHIJKLMNOPQRSTUVWX", "/",
     1, true, false, false, -1, -1},
    /* 32: what a target means is not for here */
    {TEXT("GET http://h/ HTTP/1.1\r\n" HOST "\r\n"), "GET", "http://h/", 1, true, false, false, -1,
     -1},
    {TEXT("GET /../%00%zz;#? HTTP/1.1\r\n" HOST "\r\n"), "GET", "/../%00%zz;#?", 1, true, false,
     false, -1, -1},
    /* 23, 24 */
    {TEXT(POST "content-LENGTH:\t 0 \t\r\n\r\n"), "POST", "/", 1, true, false, false, 0, -1},
    {TEXT(POST "Content-Length: 05\r\n\r\n"), "POST", "/", 1, true, false, false, 5, -1},
    {TEXT(POST "Content-Length: 00\r\n\r\n"), "POST", "/", 1, true, false, false, 0, -1},
    {TEXT(POST "Content-Length: 00000000000000000000000000000000005\r\n\r\n"), "POST", "/", 1, true,
     false, false, 5, -1},
    {TEXT(POST "Content-Length: 9223372036854775807\r\n\r\n"), "POST", "/", 1, true, false, false,
     INT64_MAX, -1},
    {TEXT(POST "Transfer-Encoding: ChunkED\r\n\r\n"), "POST", "/", 1, true, true, false, -1, -1},
    /* 35 */
    {TEXT(POST "Content-Length: 9\r\nExpect: 100-Continue\r\n\r\n"), "POST", "/", 1, true, false,
     true, 9, -1},
    {TEXT(POST "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"), "POST", "/", 1, true,
     true, true, -1, -1},
    {TEXT(POST "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n"), "POST", "/", 1, true, false,
     true, -1, -1},
    {TEXT("POST / HTTP/1.0\r\nExpect: tea\r\n\r\n"), "POST", "/", 0, false, false, false, -1, -1},
    /* 36 */
    {TEXT(GET "Connection: close\r\n\r\n"), "GET", "/", 1, false, false, false, -1, -1},
    {TEXT(GET "Connection: close, keep-alive\r\n\r\n"), "GET", "/", 1, false, false, false, -1, -1},
    {TEXT(GET "Connection: keep-alive\r\nConnection: x ,, CLOSE\r\n\r\n"), "GET", "/", 1, false,
     false, false, -1, -1},
    {TEXT(GET "Connection: closed, keep-alive\r\n\r\n"), "GET", "/", 1, true, false, false, -1, -1},
    {TEXT(GET "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n\r\n"),
     "GET", "/", 1, true, false, false, -1, -1},
    {TEXT(GET "\r\nGET /next HTTP/1.1\r\n"), "GET", "/", 1, true, false, false, -1, -1},
    {TEXT(GET "\r\n\0\x16garbage"), "GET", "/", 1, true, false, false, -1, -1},
    /* 38: framing is known, so a bad one is for the caller */
    {TEXT(POST "Inference-Header-Content-Length: 0\r\n\r\n"), "POST", "/", 1, true, false, false,
     -1, 0},
    {TEXT(POST "Inference-Header-Content-Length: 4611686018427387904\r\n\r\n"), "POST", "/", 1,
     true, false, false, -1, INT64_C(4611686018427387904)},
    {TEXT(POST "Inference-Header-Content-Length: 4611686018427387905\r\n\r\n"), "POST", "/", 1,
     true, false, false, -1, -2},
    {TEXT(POST "Inference-Header-Content-Length: 18446744073709551616\r\n\r\n"), "POST", "/", 1,
     true, false, false, -1, -2},
    {TEXT(POST "Inference-Header-Content-Length: -1\r\n\r\n"), "POST", "/", 1, true, false, false,
     -1, -2},
    {TEXT(POST "Inference-Header-Content-Length:\r\n\r\n"), "POST", "/", 1, true, false, false, -1,
     -2},
    {TEXT(POST "Inference-Header-Content-Length: 5x\r\n\r\n"), "POST", "/", 1, true, false, false,
     -1, -2},
    {TEXT(POST "Inference-Header-Content-Length: 5\r\n"
               "inference-header-content-length: 5\r\n\r\n"),
     "POST", "/", 1, true, false, false, -1, -2},
    /* 29: hosts that are */
    {TEXT("GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n"), "GET", "/", 1, true, false, false, -1, -1},
    {TEXT("GET / HTTP/1.1\r\nHost: [::ffff:1.2.3.4]\r\n\r\n"), "GET", "/", 1, true, false, false,
     -1, -1},
    {TEXT("GET / HTTP/1.1\r\nHost: a_b-c.D~e.:\r\n\r\n"), "GET", "/", 1, true, false, false, -1,
     -1},
    {TEXT("GET / HTTP/1.1\r\nHost:\r\n\r\n"), "GET", "/", 1, true, false, false, -1, -1},
    {TEXT("GET / HTTP/1.1\r\nHost: :80\r\n\r\n"), "GET", "/", 1, true, false, false, -1, -1},
    {TEXT("GET / HTTP/1.1\r\nHost: !$&'()*+,;=%c3%A9:123456\r\n\r\n"), "GET", "/", 1, true, false,
     false, -1, -1},
    {TEXT("GET / HTTP/1.1\r\nHost: [v1.a:b!]:80\r\n\r\n"), "GET", "/", 1, true, false, false, -1,
     -1},
    /* 27: tabs and every visible sign are text; names have many signs */
    {TEXT(GET "!#$%&'*+-.^_`|~09azAZ:\t\"(),/:;<=>?@[\\]{} \r\n\r\n"), "GET", "/", 1, true, false,
     false, -1, -1},
    {TEXT(GET "Empty:\r\nBlank: \t \r\n\r\n"), "GET", "/", 1, true, false, false, -1, -1},
    {TEXT(GET "A: caf\xc3\xa9 in every alphabet \x80\xff\r\n\r\n"), "GET", "/", 1, true, false,
     false, -1, -1},
};

static const struct bad {
    const char *text;
    size_t count;
    int status;
    size_t after;    /* the bytes it takes to tell; 0: all */
    const char *why; /* in the sentence */
} bads[] = {
    /* 1: other protocols, told by their first impossible byte */
    {TEXT("\x16\x03\x01"), 400, 2, "expected plain HTTP, found the hello of TLS"},
    {TEXT("\0\0\0\0"), 400, 1, "byte 0"},
    {TEXT("SSH-2.0-OpenSSH_9.2\r\n"), 400, 20, "byte 19"},
    {TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505, 14, "found 'HTTP/2.0'"},
    /* 23 */
    {TEXT(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"), 400, 0, "found it 2 times"},
    {TEXT(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"), 400, 0, "found it 2 times"},
    {TEXT(POST "Content-Length: 5, 5\r\n"), 400, 0, "found '5, 5'"},
    {TEXT(POST "Content-Length: +5\r\n"), 400, 0, "found '+5'"},
    {TEXT(POST "Content-Length: -1\r\n"), 400, 0, "found '-1'"},
    {TEXT(POST "Content-Length: 0x5\r\n"), 400, 0, "found '0x5'"},
    {TEXT(POST "Content-Length: 5_0\r\n"), 400, 0, "found '5_0'"},
    {TEXT(POST "Content-Length: 1e1\r\n"), 400, 0, "found '1e1'"},
    {TEXT(POST "Content-Length: 5 5\r\n"), 400, 0, "found '5 5'"},
    {TEXT(POST "Content-Length:\r\n"), 400, 0, "found ''"},
    {TEXT(POST "Content-Length: 9223372036854775808\r\n"), 400, 0, "below 2^63"},
    {TEXT(POST "Content-Length: 18446744073709551621\r\n"), 400, 0, "below 2^63"},
    {TEXT(POST "Content-Length: 123456789012345678901234567890\r\n"), 400, 0,
     "'123456789012345678901234'..."},
    {TEXT(POST "Content-Length: \xc2\xa0"
               "5\r\n"),
     400, 0, "found '\\xc2\\xa05'"},
    {TEXT(POST "Content-Length: 5\x85\r\n"), 400, 0, "found '5\\x85'"},
    {TEXT(POST "Transfer-Encoding: chunked\x85\r\n"), 400, 0, "found 'chunked\\x85'"},
    /* 24, and RFC 9112 6.1 */
    {TEXT(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, 0, "found both"},
    {TEXT(POST "transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n"), 400, 0, "found both"},
    {TEXT(POST "Transfer-Encoding: identity\r\n"), 501, 0, "found 'identity'"},
    {TEXT(POST "Transfer-Encoding: gzip\r\n"), 501, 0, "found 'gzip'"},
    {TEXT(POST "Transfer-Encoding: chunked, chunked\r\n"), 400, 0, "found 'chunked, chunked'"},
    {TEXT(POST "Transfer-Encoding: chunked, gzip\r\n"), 400, 0, "found 'chunked, gzip'"},
    {TEXT(POST "Transfer-Encoding: ,chunked\r\n"), 400, 0, "found ',chunked'"},
    {TEXT(POST "Transfer-Encoding: xchunked\r\n"), 501, 0, "found 'xchunked'"},
    {TEXT(POST "Transfer-Encoding: chunked\x0b\r\n"), 400, 0, "found '\\x0b'"},
    {TEXT(POST "Transfer-Encoding:\r\n"), 400, 0, "found ''"},
    {TEXT(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, 0,
     "found it 2 times"},
    {TEXT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, 0, "HTTP/1.0"},
    /* 27, and RFC 9112 5.1, RFC 9112 5.2 */
    {TEXT(GET " folded\r\n"), 400, sizeof(GET), "found ' '"},
    {TEXT(GET "A: b\r\n\tfolded\r\n"), 400, sizeof(GET "A: b\r\n"), "found '\\x09'"},
    {TEXT("GET / HTTP/1.1\r\n Host: h\r\n"), 400, 17, "found ' '"},
    {TEXT(GET "Content-Length : 5\r\n"), 400, 0, "its colon, found ' '"},
    {TEXT(GET "no colon\r\n"), 400, 0, "its colon, found ' '"},
    {TEXT(GET "nocolon\r\n"), 400, 0, "its colon, found '\\x0d'"},
    {TEXT(GET ": empty name\r\n"), 400, sizeof(GET), "found ':'"},
    {TEXT(GET "A: \0\r\n"), 400, 0, "found '\\x00'"},
    {TEXT(GET "A: \x01\r\n"), 400, 0, "found '\\x01'"},
    {TEXT(GET "A: b\x1f\r\n"), 400, 0, "found '\\x1f'"},
    {TEXT(GET "A: \x7f\r\n"), 400, 0, "found '\\x7f'"},
    {TEXT(GET "A: b\rc\r\n"), 400, 0, "expected LF after CR, found 'c'"},
    {TEXT(GET "caf\xe9: x\r\n"), 400, 0, "found '\\xe9'"},
    {TEXT(GET "Transfer-\r\nEncoding: chunked\r\n"), 400, 0, "found '\\x0d'"},
    /* 28, and RFC 9112 2.2 */
    {TEXT("GET / HTTP/1.1\nHost: h\n\n"), 400, 15, "CR LF after the version, found '\\x0a'"},
    {TEXT(GET "A: b\n\r\n"), 400, 0, "found '\\x0a'"},
    {TEXT(GET "\n"), 400, 0, "found '\\x0a'"},
    {TEXT(GET "\r\r\n"), 400, 0, "LF after CR, found '\\x0d'"},
    {TEXT("GET / HTTP/1.1\rHost: h\r\r"), 400, 16, "LF after CR, found 'H'"},
    {TEXT("\r\n\r\n" GET "\r\n"), 400, 3, "byte 2: expected a method"},
    {TEXT("\n" GET "\r\n"), 400, 1, "byte 0"},
    {TEXT("\rG"), 400, 2, "LF after CR"},
    /* 29, and RFC 9112 3.2 */
    {TEXT("GET / HTTP/1.1\r\n\r\n"), 400, 0, "host: expected one"},
    {TEXT("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"), 400, 0, "host: expected it once"},
    {TEXT("GET / HTTP/1.1\r\nHost: a\0b\r\n"), 400, 0, "found '\\x00'"},
    {TEXT("GET / HTTP/1.1\r\nHost: user@evil\r\n"), 400, 0, "found 'user@evil'"},
    {TEXT("GET / HTTP/1.1\r\nHost: a/b\r\n"), 400, 0, "found 'a/b'"},
    {TEXT("GET / HTTP/1.1\r\nHost: a b\r\n"), 400, 0, "found 'a b'"},
    {TEXT("GET / HTTP/1.1\r\nHost: a, b\r\n"), 400, 0, "found 'a, b'"},
    {TEXT("GET / HTTP/1.1\r\nHost: a:80x\r\n"), 400, 0, "found 'a:80x'"},
    {TEXT("GET / HTTP/1.1\r\nHost: a:8:0\r\n"), 400, 0, "found 'a:8:0'"},
    {TEXT("GET / HTTP/1.1\r\nHost: a%\r\n"), 400, 0, "found 'a%'"},
    {TEXT("GET / HTTP/1.1\r\nHost: a%4\r\n"), 400, 0, "found 'a%4'"},
    {TEXT("GET / HTTP/1.1\r\nHost: a%4g\r\n"), 400, 0, "found 'a%4g'"},
    {TEXT("GET / HTTP/1.1\r\nHost: a#b\r\n"), 400, 0, "found 'a#b'"},
    {TEXT("GET / HTTP/1.1\r\nHost: caf\xc3\xa9\r\n"), 400, 0, "found 'caf\\xc3\\xa9'"},
    {TEXT("GET / HTTP/1.1\r\nHost: [:::]\r\n"), 400, 0, "found '[:::]'"},
    {TEXT("GET / HTTP/1.1\r\nHost: [1.2.3.4]\r\n"), 400, 0, "found '[1.2.3.4]'"},
    {TEXT("GET / HTTP/1.1\r\nHost: [v.a]\r\n"), 400, 0, "found '[v.a]'"},
    {TEXT("GET / HTTP/1.1\r\nHost: [v1a]\r\n"), 400, 0, "found '[v1a]'"},
    {TEXT("GET / HTTP/1.1\r\nHost: [v1.]\r\n"), 400, 0, "found '[v1.]'"},
    {TEXT("GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n"), 400, 0, "found '[fe80::1%25eth0]'"},
    {TEXT("GET / HTTP/1.1\r\nHost: [::1\r\n"), 400, 0, "found '[::1'"},
    {TEXT("GET / HTTP/1.1\r\nHost: []\r\n"), 400, 0, "found '[]'"},
    {TEXT("GET / HTTP/1.1\r\nHost: [::1]x\r\n"), 400, 0, "found '[::1]x'"},
    {TEXT("GET / HTTP/1.1\r\nHost: ::1\r\n"), 400, 0, "found '::1'"},
    /* 30, and RFC 9112 2.3 */
    {TEXT("GET / HTTP/0.9\r\n"), 505, 14, "found 'HTTP/0.9'"},
    {TEXT("GET / HTTP/1.2\r\n"), 505, 14, "found 'HTTP/1.2'"},
    {TEXT("GET / HTTP/1.10\r\n"), 400, 15, "found '0'"},
    {TEXT("GET / HTTP/2.0\r\n"), 505, 14, "found 'HTTP/2.0'"},
    {TEXT("GET / HTTP/9.9\r\n"), 505, 14, "found 'HTTP/9.9'"},
    {TEXT("PRI * HTTP/2.0\r\n"), 505, 14, "HTTP/2 begins a connection with its preface"},
    {TEXT("\x16\x04\x01"), 400, 2, "expected a method, found '\\x16'"},
    {TEXT("GET / HTTP/4294967297.1\r\n"), 400, 13, "found '2'"},
    {TEXT("GET / http/1.1\r\n"), 400, 7, "found 'h'"},
    {TEXT("GET / ICE/1.0\r\n"), 400, 7, "found 'I'"},
    {TEXT("GET /\r\n"), 400, 6, "then a space, found '\\x0d'"},
    {TEXT("GET / \r\n"), 400, 7, "found '\\x0d'"},
    {TEXT("GET / HTTP/1.1 \r\n"), 400, 15, "found ' '"},
    /* 31 */
    {TEXT("G\0ET / HTTP/1.1\r\n"), 400, 2, "byte 1"},
    {TEXT(" GET / HTTP/1.1\r\n"), 400, 1, "byte 0"},
    {TEXT("GET\t/ HTTP/1.1\r\n"), 400, 4, "byte 3"},
    {TEXT("ABCDEFGHIJKLMNOPQRSTUVWXY / HTTP/1.1\r\n"), 501, 25, "at most 24 bytes"},
    /* 32 */
    {TEXT("GET  / HTTP/1.1\r\n"), 400, 5, "a target after one space"},
    {TEXT("GET /a b HTTP/1.1\r\n"), 400, 8, "HTTP/1.1 after the target, found 'b'"},
    {TEXT("GET /\xc3\xa9 HTTP/1.1\r\n"), 400, 6, "found '\\xc3'"},
    {TEXT("GET /\x7f HTTP/1.1\r\n"), 400, 6, "found '\\x7f'"},
    {TEXT("GET /\0 HTTP/1.1\r\n"), 400, 6, "found '\\x00'"},
    /* 35 */
    {TEXT(POST "Expect: tea\r\n\r\n"), 417, 0, "found 'tea'"},
    {TEXT(POST "Expect: 100-continue\r\nExpect:\r\n\r\n"), 417, 0, "found ''"},
    /* 44: what decides who someone is must not be there twice */
    {TEXT(GET "Authorization: a\r\nAuthorization: b\r\n\r\n"), 400, 0, "authorization"},
    {TEXT(GET "X-API-Key: a\r\nX-Api-Key: b\r\n\r\n"), 400, 0, "x-api-key"},
    {TEXT(GET "Origin: a\r\nOrigin: a\r\n\r\n"), 400, 0, "origin"},
    {TEXT(GET "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n\r\n"), 400, 0,
     "content-encoding"},
};

#endif
