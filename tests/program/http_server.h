// A web server on this machine, for tests: it serves one file, and fails on request.
#pragma once
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/network.h"

namespace bv::test {

struct Answer {
  int status = 200;                // other answers have no body
  bool ranges = true;              // false: ignores requested ranges
  size_t cut = std::string::npos;  // breaks off after so many bytes of the body
  bool hang = false;               // keeps the connection open after that, until release()
  std::string etag = {};           // sends the whole file if If-Range has another one
};

class HttpServer {
 public:
  // The answers to the first requests; later requests get the last one.
  HttpServer(std::string body, std::vector<Answer> answers)
      : body_(std::move(body)), answers_(std::move(answers)) {
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listening_.fd(), any, length) != 0 || listen(listening_.fd(), 8) != 0)
      throw std::runtime_error("no port to listen at");
    getsockname(listening_.fd(), any, &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    stop_ = true;
    thread_.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string place() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::string url() const { return place() + "/set.tar.gz"; }
  // Makes hanging connections send the rest.
  void release() { released_ = true; }
  std::vector<std::string> paths() const {
    const std::lock_guard lock(mutex_);
    return paths_;
  }
  // The first bytes of the ranges requested so far.
  std::vector<size_t> begins() const {
    const std::lock_guard lock(mutex_);
    return begins_;
  }

 private:
  static bool readable(int fd) {
    pollfd item{fd, POLLIN, 0};
    return poll(&item, 1, 10) > 0;
  }
  void serve() {
    while (!stop_) {
      if (!readable(listening_.fd())) continue;
      const Socket client(accept(listening_.fd(), nullptr, nullptr));
      std::string request;
      while (!stop_ && request.find("\r\n\r\n") == request.npos) {
        char text[2048];
        if (!readable(client.fd())) continue;
        const ssize_t n = read(client.fd(), text, sizeof text);
        if (n <= 0) break;
        request.append(text, size_t(n));
        if (!is_get(request)) break;
      }
      // A client of another test, which used this port before: its connection doesn't count.
      if (!is_get(request)) continue;
      const Answer answer = next(request);
      const size_t if_range = request.find("If-Range: ");
      const bool other = if_range != request.npos && !answer.etag.empty() &&
                         request.compare(if_range + 10, answer.etag.size(), answer.etag) != 0;
      const std::string whole = response(answer, other ? 0 : begin_of(request));
      const size_t head = whole.find("\r\n\r\n") + 4;
      const size_t sent = answer.cut < whole.size() - head ? head + answer.cut : whole.size();
      send_all(client.fd(), whole.substr(0, sent));
      while (answer.hang && !stop_ && !released_ && !readable(client.fd())) usleep(1000);
      if (answer.hang && released_) send_all(client.fd(), whole.substr(sent));
    }
  }
  static bool is_get(const std::string& request) { return request.starts_with("GET "); }
  static size_t begin_of(const std::string& request) {
    const std::string header = "Range: bytes=";
    const size_t at = request.find(header);
    size_t begin = 0;
    if (at != request.npos)
      std::from_chars(&request[at + header.size()], request.data() + request.size(), begin);
    return begin;
  }
  Answer next(const std::string& request) {
    const std::lock_guard lock(mutex_);
    begins_.push_back(begin_of(request));
    const size_t path = request.find(' ') + 1;
    paths_.push_back(request.substr(path, request.find(' ', path) - path));
    return answers_[std::min(begins_.size(), answers_.size()) - 1];
  }
  std::string response(const Answer& answer, size_t begin) const {
    const size_t size = body_.size();
    std::string status = std::to_string(answer.status) + " X", more, body;
    if (answer.status == 200 && begin >= size && answer.ranges) {
      status = "416 X";
      more = "Content-Range: bytes */" + std::to_string(size) + "\r\n";
    } else if (answer.status == 200) {
      const size_t from = answer.ranges ? begin : 0;
      if (from > 0) {
        status = "206 X";
        more = "Content-Range: bytes " + std::to_string(from) + "-" + std::to_string(size - 1) +
               "/" + std::to_string(size) + "\r\n";
      }
      body = body_.substr(from);
    }
    return "HTTP/1.1 " + status + "\r\nConnection: close\r\n" + more +
           (answer.etag.empty() ? "" : "ETag: " + answer.etag + "\r\n") +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static void send_all(int fd, std::string text) {
    while (!text.empty()) {
      const ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.erase(0, size_t(n));
    }
  }

  std::string body_;
  std::vector<Answer> answers_;
  Socket listening_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port_ = 0;
  std::atomic<bool> stop_ = false, released_ = false;
  mutable std::mutex mutex_;
  std::vector<size_t> begins_;
  std::vector<std::string> paths_;
  std::thread thread_;
};

}  // namespace bv::test
