"""The S3-compatible services with a scheme of their own: what differs between them, as a table.

Each one takes S3 requests at an endpoint that follows from the host name people know it by. OSS and COS refuse requests
that name the bucket in the path, so the bucket goes into the host name there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DIALECTS", "S3_VARIABLES", "Dialect", "Variables", "first_set"]


def first_set(names: tuple[str, ...], env: Mapping[str, str]) -> str | None:
    """The value of the first variable of ``names`` that is set and not empty."""
    return next((env[name] for name in names if env.get(name)), None)


@dataclass(frozen=True, slots=True)
class Variables:
    """Names of environment variables, the first that is set wins."""

    access_key: tuple[str, ...]
    secret_key: tuple[str, ...]
    session_token: tuple[str, ...]
    endpoint: tuple[str, ...]
    region: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one service is addressed through its S3 interface."""

    name: str
    domain: str
    host: re.Pattern[str]  #: with the groups ``bucket`` and ``region``
    endpoint: str  #: a format string over the groups of ``host``
    example: str
    bucket_in_host: bool
    variables: Variables

    def endpoint_of(self, match: re.Match[str]) -> str:
        return self.endpoint.format_map({name: text or "" for name, text in match.groupdict().items()})


S3_VARIABLES = Variables(
    ("AWS_ACCESS_KEY_ID",),
    ("AWS_SECRET_ACCESS_KEY",),
    ("AWS_SESSION_TOKEN",),
    ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    ("AWS_REGION", "AWS_DEFAULT_REGION"),
)

DIALECTS: dict[str, Dialect] = {
    "bos": Dialect(
        name="Baidu BOS",
        domain=".bcebos.com",
        host=re.compile(r"(?P<bucket>.+?)\.(?:s3\.)?(?P<region>[a-z0-9-]+)\.bcebos\.com"),
        endpoint="https://s3.{region}.bcebos.com",
        example="bos://bucket.bj.bcebos.com/prefix",
        bucket_in_host=False,
        variables=Variables(
            ("BOS_ACCESS_KEY_ID", "BCE_ACCESS_KEY_ID", "BDCLOUD_ACCESS_KEY"),
            ("BOS_SECRET_ACCESS_KEY", "BCE_SECRET_ACCESS_KEY", "BDCLOUD_SECRET_KEY"),
            ("BOS_SESSION_TOKEN", "BCE_SESSION_TOKEN"),
            ("BOS_ENDPOINT", "BCE_ENDPOINT"),
            ("BOS_REGION",),
        ),
    ),
    "oss": Dialect(
        name="Alibaba OSS",
        domain=".aliyuncs.com",
        host=re.compile(
            r"(?P<bucket>.+?)\.(?:s3\.)?oss-(?P<region>[a-z0-9-]+?)(?P<internal>-internal)?\.aliyuncs\.com"
        ),
        endpoint="https://s3.oss-{region}{internal}.aliyuncs.com",
        example="oss://bucket.oss-cn-hangzhou.aliyuncs.com/prefix",
        bucket_in_host=True,
        variables=Variables(
            ("OSS_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_ID"),
            ("OSS_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"),
            ("OSS_SESSION_TOKEN", "ALIBABA_CLOUD_SECURITY_TOKEN"),
            ("OSS_ENDPOINT",),
            ("OSS_REGION",),
        ),
    ),
    "cos": Dialect(
        name="Tencent COS",
        domain=".myqcloud.com",
        host=re.compile(r"(?P<bucket>.+?)\.cos\.(?P<region>[a-z0-9-]+)\.myqcloud\.com"),
        endpoint="https://cos.{region}.myqcloud.com",
        example="cos://bucket-1250000000.cos.ap-guangzhou.myqcloud.com/prefix",
        bucket_in_host=True,
        variables=Variables(
            ("COS_SECRET_ID", "TENCENTCLOUD_SECRET_ID"),
            ("COS_SECRET_KEY", "TENCENTCLOUD_SECRET_KEY"),
            ("COS_SESSION_TOKEN", "TENCENTCLOUD_SESSION_TOKEN"),
            ("COS_ENDPOINT",),
            ("COS_REGION", "TENCENTCLOUD_REGION"),
        ),
    ),
    "obs": Dialect(
        name="Huawei OBS",
        domain=".myhuaweicloud.com",
        host=re.compile(r"(?P<bucket>.+?)\.obs\.(?P<region>[a-z0-9-]+)\.myhuaweicloud\.com"),
        endpoint="https://obs.{region}.myhuaweicloud.com",
        example="obs://bucket.obs.cn-north-4.myhuaweicloud.com/prefix",
        bucket_in_host=True,
        variables=Variables(
            ("OBS_ACCESS_KEY_ID", "HUAWEICLOUD_SDK_AK"),
            ("OBS_SECRET_ACCESS_KEY", "HUAWEICLOUD_SDK_SK"),
            ("OBS_SECURITY_TOKEN", "HUAWEICLOUD_SDK_SECURITYTOKEN"),
            ("OBS_ENDPOINT",),
            ("OBS_REGION",),
        ),
    ),
}
